// Command sqsd runs the in-memory SQS of package sqstest as a process, for the demo and for
// tests that kill things. It prints its URL on the first line of stdout and stops on
// SIGTERM or SIGINT. What it holds is gone then. Beside the SQS protocol it serves:
//
//	POST   /_test/fault     {"status":503,"code":"ServiceUnavailable"}: what every request meets from now on
//	DELETE /_test/fault     all is well again
//	GET    /_test/messages  ?queue=NAME&from=N&wait=5s: what the queue accepted after its first N messages,
//	                        waiting for a first one if asked to
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"pgrelay/internal/sqstest"
)

// drain bounds how long requests under way may hold up the end.
const drain = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "sqsd:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("sqsd", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:0", "address to listen on")
	history := flags.Int("history", 0, "messages of a queue and calls to keep for /_test; 0 keeps all")
	var queues []string
	flags.Func("queue", "a queue to create, FIFO if its name ends in .fifo; repeat for more", func(name string) error {
		queues = append(queues, name)
		return sqstest.CheckQueueName(name)
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", *addr)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	url := "http://" + listener.Addr().String()
	srv := sqstest.New(sqstest.WithURL(url), sqstest.WithHistory(*history))
	for _, name := range queues {
		srv.CreateQueue(name, nil)
	}
	if _, err := fmt.Fprintln(stdout, url); err != nil {
		return errors.Join(fmt.Errorf("printing the URL: %w", err), listener.Close())
	}
	return serve(ctx, listener, srv)
}

func serve(ctx context.Context, listener net.Listener, srv *sqstest.Server) error {
	mux := http.NewServeMux()
	mux.Handle("/", srv)
	admin := &admin{srv: srv}
	admin.register(mux)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	srv.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if web.Shutdown(ctx) != nil {
		web.Close() //nolint:errcheck // the process ends anyway
	}
	<-served //nolint:errcheck // http.ErrServerClosed
	return nil
}
