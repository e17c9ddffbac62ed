package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// limit ends a demo that hangs. It takes about ten seconds on an idle machine.
const limit = 3 * time.Minute

var errStopped = errors.New("stopped")

func main() {
	binary := flag.String("pgrelay", "bin/pgrelay", "the program to show")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, os.Stdout, *binary)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the demo and clears away what it used.
func run(ctx context.Context, w io.Writer, binary string) error {
	// A child's Pdeathsig fires when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()
	playing, end := context.WithCancelCause(limited)
	defer end(nil)
	s := &stage{page: &page{w: w}, end: end}
	err := s.open(playing, binary)
	if err == nil {
		err = s.play(playing)
	}
	if ctx.Err() != nil {
		return errors.Join(errStopped, s.close(false))
	}
	if err = errors.Join(err, s.close(err != nil)); err == nil {
		s.page.text("Done in %.0f s; everything is cleaned up.", time.Since(began).Seconds())
	}
	return err
}

// play goes through the steps.
func (s *stage) play(ctx context.Context) error {
	for i, step := range steps {
		s.page.heading(i+1, step.title)
		if err := step.play(ctx, s); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}
