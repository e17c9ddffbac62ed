package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"pgrelay/internal/sqstest"
)

const queueName = "bookings.fifo"

// queue is the local SQS with the one queue that the demo uses.
type queue struct {
	*sqstest.Server
	url  string
	http *http.Server
	done chan struct{}
}

func openQueue(ctx context.Context) (*queue, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for SQS: %w", err)
	}
	q := &queue{url: "http://" + listener.Addr().String(), done: make(chan struct{})}
	q.Server = sqstest.New(sqstest.WithURL(q.url))
	q.CreateQueue(queueName, nil)
	q.http = &http.Server{Handler: q.Server, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(q.done)
		_ = q.http.Serve(listener) // until close
	}()
	return q, nil
}

// down makes every call fail, up ends that.
func (q *queue) down() {
	q.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{Status: http.StatusServiceUnavailable} })
}

func (q *queue) up() { q.SetFault(nil) }

// await waits until n messages have arrived in all, and returns those after the first from.
func (q *queue) await(ctx context.Context, from, n int) ([]sqstest.Message, error) {
	if err := q.Wait(ctx, queueName, n); err != nil {
		return nil, err
	}
	return q.MessagesFrom(queueName, from), nil
}

func (q *queue) close() {
	q.Server.Close()
	_ = q.http.Close() // nobody talks to it any more
	<-q.done
}
