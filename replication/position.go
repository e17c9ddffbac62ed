package replication

import "github.com/jackc/pglogrepl"

// position is how far the slot may forget. It only grows, and it is never behind a
// commit whose rows were not all handed over.
type position struct {
	confirmed pglogrepl.LSN
	// open says that a transaction is half received. A keepalive's WAL end may then lie
	// behind the rows that are still to come.
	open bool
}

func (p *position) begin() { p.open = true }

// commit takes the end of the transaction, not the place of its commit record: the
// server sends a transaction again whose end is behind the position.
func (p *position) commit(end pglogrepl.LSN) {
	p.open = false
	p.confirmed = max(p.confirmed, end)
}

// keepalive follows the server over WAL that holds nothing for us, e.g. other
// databases', which would otherwise be held for ever by an idle outbox.
func (p *position) keepalive(walEnd pglogrepl.LSN) {
	if !p.open {
		p.confirmed = max(p.confirmed, walEnd)
	}
}
