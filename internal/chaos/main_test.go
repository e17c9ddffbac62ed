package chaos_test

import (
	"os"
	"testing"

	"pgrelay/internal/cli"
	"pgrelay/internal/pgtest"
)

// asProgram, set in its environment, makes the test binary be pgrelay: with the race detector if the tests have it.
const asProgram = "PGRELAY_CHAOS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(cli.Program{}))
	}
	pgtest.Main(m)
}
