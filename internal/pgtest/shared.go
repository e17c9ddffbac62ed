package pgtest

import (
	"sync"

	"github.com/jackc/pgx/v5"
)

// idleAdmins is more than there are tests at a time.
const idleAdmins = 16

// sharedServer is the server of the test binary, started when a test first asks.
type sharedServer struct {
	mu     sync.Mutex
	server *Server
	err    error
}

var shared sharedServer

// get starts the server once; when that fails, it fails every test the same way.
func (s *sharedServer) get() (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		if s.server, s.err = newServer(Options{}); s.err == nil {
			s.server.idle = make(chan *pgx.Conn, idleAdmins)
		}
	}
	return s.server, s.err
}

func (s *sharedServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.close()
}
