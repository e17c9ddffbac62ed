package sqstest_test

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"
)

// refusal is the error that a fact asks for: its code as ErrorCode spells it and, where
// the SDK models it, its Go type.
type refusal struct {
	code string
	as   func(error) bool
}

// unmodelled are the two that have no type of their own.
func unmodelled(code string) refusal {
	return refusal{code, as[*smithy.GenericAPIError]}
}

func modelled[T error](code string) refusal { return refusal{code, as[T]} }

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func (r refusal) require(t testing.TB, err error) {
	t.Helper()
	var api smithy.APIError
	require.ErrorAs(t, err, &api)
	require.Equal(t, r.code, api.ErrorCode())
	require.True(t, r.as(err), "type of %v", err)
}
