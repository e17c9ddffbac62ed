package sqstest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqsfacts"
)

// refusal is the error that a fact asks for.
type refusal struct{ sqsfacts.Refusal }

func unmodelled(code string) refusal { return refusal{sqsfacts.Unmodelled(code)} }

func modelled[T error](code string) refusal { return refusal{sqsfacts.Modelled[T](code)} }

var badParameter = unmodelled("InvalidParameterValue")

func (r refusal) require(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, r.Check(err))
}
