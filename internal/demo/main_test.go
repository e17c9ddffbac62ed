package main

import (
	"os"
	"testing"

	"pgrelay/internal/pgtest"
)

// asProcess makes the test binary be the demo, so that a real process meets a real signal.
const asProcess = "PGRELAY_TEST_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	pgtest.Main(m)
}
