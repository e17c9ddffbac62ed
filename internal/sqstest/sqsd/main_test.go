package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pgrelay/internal/sqstest"
)

// asProcess makes the test binary be sqsd, so that a real process meets a real signal.
const asProcess = "SQSD_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs the command inside the test and returns its URL.
func start(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(run(ctx, args, out), out.Close())
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// ask makes a request and returns the answer's status and body.
func ask(ctx context.Context, method, url, target, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if target != "" {
		r.Header.Set("X-Amz-Target", "AmazonSQS."+target)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, string(got), errors.Join(err, response.Body.Close())
}

func do(t *testing.T, method, url, target, body string) (int, string) {
	t.Helper()
	status, got, err := ask(t.Context(), method, url, target, body)
	require.NoError(t, err)
	return status, got
}

const message = `{"QueueUrl":"orders","MessageBody":"<x>"}`

func TestMessagesAreListedFromANumberOn(t *testing.T) {
	url := start(t, "-queue", "orders", "-queue", "orders.fifo")
	for range 3 {
		status, _ := do(t, http.MethodPost, url, "SendMessage", message)
		require.Equal(t, http.StatusOK, status)
	}
	status, body := do(t, http.MethodGet, url+"/_test/messages?queue=orders&from=1&wait=10s", "", "")
	require.Equal(t, http.StatusOK, status)
	var found []sqstest.Message
	require.NoError(t, json.Unmarshal([]byte(body), &found))
	require.Len(t, found, 2)
	require.Equal(t, "<x>", found[0].Body)
	require.False(t, found[0].ReceivedAt.IsZero())
	_, body = do(t, http.MethodGet, url+"/_test/messages?queue=orders&from=3&wait=1ms", "", "")
	require.JSONEq(t, `[]`, body)
	for _, query := range []string{"from=x", "wait=x"} {
		status, _ = do(t, http.MethodGet, url+"/_test/messages?queue=orders&"+query, "", "")
		require.Equal(t, http.StatusBadRequest, status)
	}
}

func TestAFaultLastsUntilItIsTakenAway(t *testing.T) {
	url := start(t, "-queue", "orders")
	send := func() (int, string) { return do(t, http.MethodPost, url, "SendMessage", message) }
	status, _ := do(t, http.MethodPost, url+"/_test/fault", "", `{"status":503,"code":"ServiceUnavailable","message":"down"}`)
	require.Equal(t, http.StatusNoContent, status)
	for range 2 {
		status, body := send()
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, "down")
	}
	do(t, http.MethodDelete, url+"/_test/fault", "", "")
	status, _ = send()
	require.Equal(t, http.StatusOK, status)
}

func TestAFaultCanBeNarrow(t *testing.T) {
	url := start(t, "-queue", "orders", "-queue", "other")
	do(t, http.MethodPost, url+"/_test/fault", "", `{"code":"KmsThrottled","queue":"orders","action":"SendMessage","times":1,"delay":"1ms"}`)
	status, _ := do(t, http.MethodPost, url, "SendMessage", `{"QueueUrl":"other","MessageBody":"x"}`)
	require.Equal(t, http.StatusOK, status)
	status, _ = do(t, http.MethodPost, url, "ReceiveMessage", `{"QueueUrl":"orders"}`)
	require.Equal(t, http.StatusOK, status)
	status, body := do(t, http.MethodPost, url, "SendMessage", message)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "KmsThrottled")
	status, _ = do(t, http.MethodPost, url, "SendMessage", message)
	require.Equal(t, http.StatusOK, status)
}

func TestAFaultThatIsNoneIsRefused(t *testing.T) {
	url := start(t, "-queue", "orders")
	for _, spec := range []string{`{`, `{"colour":"red"}`, `{"delay":"x"}`, `{"cut":"between"}`} {
		status, _ := do(t, http.MethodPost, url+"/_test/fault", "", spec)
		require.Equal(t, http.StatusBadRequest, status, spec)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	require.Error(t, run(t.Context(), []string{"-queue", "a b"}, io.Discard))
	require.Error(t, run(t.Context(), []string{"-addr", "nowhere:x"}, io.Discard))
	require.ErrorIs(t, run(t.Context(), []string{"-h"}, io.Discard), flag.ErrHelp)
}

func TestTheProcessStopsOnSIGTERMAndAnswersWhatIsUnderWay(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-queue", "orders")
	cmd.Env = append(os.Environ(), asProcess+"=1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(line)

	do(t, http.MethodPost, url+"/_test/fault", "", `{"delay":"1h"}`)
	sent := make(chan error, 1)
	go func() {
		_, _, err := ask(t.Context(), http.MethodPost, url, "SendMessage", message)
		sent <- err
	}()
	_, body := do(t, http.MethodGet, url+"/_test/messages?queue=orders&wait=10s", "", "")
	require.Contains(t, body, "<x>", "stored, and its answer held back")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-sent)
	require.NoError(t, cmd.Wait())
}
