package check

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// checkHTTP tries the address of the admin server. A relay at work has it rightly.
func checkHTTP(ctx context.Context, addr string) []Line {
	if addr == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		_ = listener.Close() // it was opened only to see that it can be
	}
	return []Line{judgeHTTP(addr, err, err != nil && relayServes(ctx, addr))}
}

func judgeHTTP(addr string, err error, ours bool) Line {
	const name = "http"
	switch {
	case ours:
		return ok(name, "a relay serves %s", addr)
	case err != nil:
		return failure(name, "stop who listens there (ss -ltnp names it), or set another http.addr", "%s cannot be had: %s", addr, err)
	}
	return ok(name, "%s is free", addr)
}

// relayServes says whether who listens has metrics of ours.
func relayServes(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return false
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	const enough = 1 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, enough))
	return err == nil && strings.Contains(string(text), "\npgrelay_")
}
