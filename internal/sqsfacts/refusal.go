package sqsfacts

import (
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// Refusal is an error of SQS: its code as ErrorCode spells it and its Go type.
type Refusal struct {
	code string
	as   func(error) bool
}

// Modelled is a refusal that the SDK has a type for.
func Modelled[T error](code string) Refusal { return Refusal{code, as[T]} }

// Unmodelled is a refusal without a type of its own.
func Unmodelled(code string) Refusal { return Modelled[*smithy.GenericAPIError](code) }

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

// The refusals of messages.
var (
	badParameter = Unmodelled("InvalidParameterValue")
	missing      = Unmodelled("MissingParameter")
	badContents  = Modelled[*types.InvalidMessageContents]("InvalidMessageContents")
	noQueue      = Modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue")
)

// Check says in what the result of a call differs from the refusal.
func (r Refusal) Check(err error) error {
	if err == nil {
		return fmt.Errorf("not refused with %s", r.code)
	}
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != r.code || !r.as(err) {
		return fmt.Errorf("not refused with %s: %w", r.code, err)
	}
	return nil
}
