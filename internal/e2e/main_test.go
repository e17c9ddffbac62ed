package e2e_test

import (
	"os"
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
	pgtest.Main(m)
}
