package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Watched is what health is told from.
type Watched interface {
	// Leads says whether this instance relays; a healthy one that doesn't stands by.
	Leads() bool
	// Turns says whether the main loop has turned lately.
	Turns() bool
	// Stands says whether this instance leads or reaches the server to stand by.
	Stands() bool
}

// Server is the admin server.
type Server struct {
	listener net.Listener
	handler  http.Handler
	watched  atomic.Value // Watched
	state    atomic.Value // func() any
}

// Listen takes the address, so that a taken port is an error before anything starts. An empty address is no server.
func Listen(addr string, registry *prometheus.Registry) (*Server, error) {
	s := &Server{}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /state", s.showState)
	s.handler = mux
	if addr == "" {
		return s, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s.listener = listener
	return s, nil
}

// Addr is where it listens, empty if it doesn't.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Watch names what health is told from, and what /state shows as JSON; until then the instance is starting.
func (s *Server) Watch(w Watched, state func() any) {
	s.state.Store(state)
	s.watched.Store(w)
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close() // a client that won't go
		}
	})
	defer stopped()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving http: %w", err)
	}
	return nil
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	watched, ok := s.watched.Load().(Watched)
	switch {
	case !ok:
		answer(w, http.StatusOK, "starting")
	case watched.Turns():
		answer(w, http.StatusOK, "ok")
	default:
		answer(w, http.StatusServiceUnavailable, "the relay's loop does not turn")
	}
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	watched, ok := s.watched.Load().(Watched)
	switch {
	case !ok:
		answer(w, http.StatusServiceUnavailable, "starting")
	case watched.Leads():
		answer(w, http.StatusOK, "leading")
	case watched.Stands():
		answer(w, http.StatusOK, "standing by")
	default:
		answer(w, http.StatusServiceUnavailable, "PostgreSQL is out of reach")
	}
}

func (s *Server) showState(w http.ResponseWriter, _ *http.Request) {
	state, ok := s.state.Load().(func() any)
	if !ok {
		answer(w, http.StatusServiceUnavailable, "starting")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state()) // the client may be gone
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the client may be gone
}
