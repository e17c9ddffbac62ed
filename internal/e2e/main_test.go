package e2e_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"pgrelay/internal/cli"
	"pgrelay/internal/pgtest"
	"pgrelay/relay"
)

// asProgram, set in its environment, makes the test binary be pgrelay.
const asProgram = "PGRELAY_E2E_PROGRAM"

// wrap stands between the relay and its destinations in each process that a test
// starts. A test's file may set it in an init, and steer it by variables that it gives
// the process.
var wrap func(name string, pub relay.Publisher) relay.Publisher

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(cli.Program{Wrap: wrap}))
	}
	// These tests wait for processes, servers and time-outs more than they work.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}
