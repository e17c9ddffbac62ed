package check

import (
	"context"
	"errors"
	"strings"
	"sync"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// checkDestinations opens all at once, each within its time.
func checkDestinations(ctx context.Context, all []Destination) []Line {
	lines := make([]Line, len(all))
	var wg sync.WaitGroup
	for i, d := range all {
		wg.Go(func() { lines[i] = d.check(ctx) })
	}
	wg.Wait()
	return lines
}

func (d Destination) check(ctx context.Context) Line {
	err := d.Err
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		err = d.Publisher.Open(ctx)
		_ = d.Publisher.Close() // nothing was sent
	}
	var notes []string
	if d.Notes != nil {
		notes = d.Notes()
	}
	return judgeDestination(d, err, notes)
}

// judgeDestination says what opening a destination has brought: notes are what it has warned of.
func judgeDestination(d Destination, err error, notes []string) Line {
	name := "destination " + d.Name
	var fault *relay.Fault
	switch {
	case errors.As(err, &fault) && fault.Detail != "":
		return failure(name, fault.Detail, "%s", strings.ReplaceAll(fault.Reason, "_", " "))
	case err != nil:
		return failure(name, "correct destinations."+d.Name, "%s", err)
	case len(notes) > 0:
		return warning(name, "allow it, or accept what is taken instead", "%s", strings.Join(notes, "; "))
	case d.Config.Type == config.TypeStdout:
		return ok(name, "standard output")
	case d.Config.Type == config.TypeSMTP:
		return ok(name, "mail server %s:%d takes mail from %s", d.Config.Host, d.Config.Port, d.Config.From)
	case d.FIFO:
		return ok(name, "FIFO queue %s answers", d.Config.Queue)
	}
	return ok(name, "queue %s answers", d.Config.Queue)
}
