package pgtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

var errNotYet = errors.New("the condition does not hold")

// Eventually asks cond again and again until it holds (returns true, or no error),
// and fails the test if it does not within timeout. It is the one place where tests
// wait for something that gives no signal. cond runs on the caller's goroutine.
func Eventually[C func() bool | func() error](t testing.TB, timeout time.Duration, cond C, msg string, args ...any) {
	t.Helper()
	var ask func() error
	switch c := any(cond).(type) {
	case func() error:
		ask = c
	case func() bool:
		ask = func() error {
			if c() {
				return nil
			}
			return errNotYet
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := poll(ctx, ask); err != nil {
		t.Fatalf("%s: not within %s: %v", fmt.Sprintf(msg, args...), timeout, err)
	}
}

// poll asks until there is no error, and at the deadline returns the last one.
func poll(ctx context.Context, ask func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
