package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// limit ends a play that hangs. One takes about ten seconds on an idle machine, and minutes on a very busy one.
const limit = 5 * time.Minute

// ErrStopped is the end of a play by a signal.
var ErrStopped = errors.New("stopped")

// Play is what is shown, and what it needs.
type Play struct {
	Name          string
	Configuration string   // pgrelay.yaml; it finds DATABASE_URL, SQS_ENDPOINT, HTTP_ADDR and SMTP_HOST, _PORT and _TLS in its environment
	Schema        string   // the user's own tables
	Queues        []string // that the local SQS has
	Acts          func(*Stage) []Act
}

// Act is one thing that is shown.
type Act struct {
	Title string
	Play  func(context.Context) error
}

// Main runs the play as a program.
func Main(p Play) {
	binary := flag.String("pgrelay", "bin/pgrelay", "the program to show")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := Run(ctx, os.Stdout, *binary, p)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(1)
	}
}

// Run plays with a build of pgrelay and clears away what it used.
func Run(ctx context.Context, w io.Writer, binary string, p Play) error {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()
	playing, end := context.WithCancelCause(limited)
	defer end(nil)
	s := &Stage{Page: &Page{w: w}, end: end}
	err := s.open(playing, binary, p)
	if err == nil {
		err = s.play(playing, p.Acts(s))
	}
	if ctx.Err() != nil {
		return errors.Join(ErrStopped, s.close(false))
	}
	if err = errors.Join(err, s.close(err != nil)); err == nil {
		s.Text("Done in %.0f s; everything is cleaned up.", time.Since(began).Seconds())
	}
	return err
}

func (s *Stage) play(ctx context.Context, acts []Act) error {
	for i, act := range acts {
		s.heading(i+1, act.Title)
		if err := act.Play(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}
