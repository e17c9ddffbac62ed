package stage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"pgrelay/internal/sqstest"
)

// Queues is the local SQS.
type Queues struct {
	*sqstest.Server
	URL  string
	http *http.Server
	done chan struct{}
}

func openQueues(ctx context.Context, names []string) (*Queues, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for SQS: %w", err)
	}
	q := &Queues{URL: "http://" + listener.Addr().String(), done: make(chan struct{})}
	q.Server = sqstest.New(sqstest.WithURL(q.URL))
	for _, name := range names {
		q.CreateQueue(name, nil)
	}
	q.http = &http.Server{Handler: q.Server, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(q.done)
		_ = q.http.Serve(listener) // until close
	}()
	return q, nil
}

// Down makes every call fail, Up ends that.
func (q *Queues) Down() {
	q.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{Status: http.StatusServiceUnavailable} })
}

// Up is what Down ends with.
func (q *Queues) Up() { q.SetFault(nil) }

// Await waits until n messages have arrived in a queue in all, and returns those after the first from.
func (q *Queues) Await(ctx context.Context, name string, from, n int) ([]sqstest.Message, error) {
	if err := q.Wait(ctx, name, n); err != nil {
		return nil, err
	}
	return q.MessagesFrom(name, from), nil
}

func (q *Queues) close() {
	q.Server.Close()
	_ = q.http.Close() // nobody talks to it any more
	<-q.done
}
