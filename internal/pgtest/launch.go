package pgtest

// Launch starts a server for a program that is no test, such as the demo. Whoever
// launches a server closes it.
func Launch(opts Options) (*Server, error) { return newServer(opts) }

// Close stops the server and removes its files.
func (s *Server) Close() error { return s.close() }

// URL is the address of a database, as the superuser postgres.
func (s *Server) URL(database string) string { return s.url(database) }
