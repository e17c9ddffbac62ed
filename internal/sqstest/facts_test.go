package sqstest_test

import (
	"testing"

	"pgrelay/internal/sqsfacts"
	"pgrelay/internal/sqstest"
)

func TestTheFactsHold(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	sqsfacts.Server{Client: client(t, ts.URL)}.Run(t, nil)
}
