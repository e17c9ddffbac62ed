package sqstest

import (
	"net/http/httptest"
	"testing"
)

// TestServer is a Server that listens on loopback.
type TestServer struct {
	*Server
	URL string
}

// Start runs a server until the test ends.
func Start(t testing.TB, opts ...Option) *TestServer {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	url := "http://" + listening.Listener.Addr().String()
	srv := New(append([]Option{WithURL(url)}, opts...)...)
	listening.Config.Handler = srv
	listening.Start()
	t.Cleanup(func() {
		srv.Close()
		listening.Close()
	})
	return &TestServer{Server: srv, URL: url}
}
