package replication

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// PublicationState is what the server says about a publication, and what a [Stream] would do about it.
type PublicationState struct {
	Exists bool
	// Statements bring it about; none: it carries the inserts of every table as it is.
	Statements []string
	// Refused says why a Stream doesn't run them itself, apart from what it may not; empty if it would.
	Refused string
	// LeftOut says which tables cannot be published at all and why; empty if all can.
	LeftOut string
}

// InspectPublication asks the server about a publication. It changes nothing.
func InspectPublication(ctx context.Context, conn *pgx.Conn, name string, tables []Table) (PublicationState, error) {
	p, err := readPublication(ctx, conn, name, tables)
	if err != nil {
		return PublicationState{}, err
	}
	st := PublicationState{Exists: p.exists, LeftOut: p.leftOut()}
	if p.anyPublishable() {
		plan := p.plan(name)
		st.Statements, st.Refused = plan.statements, plan.refused
	}
	return st, nil
}

// Probe opens a session for replication and ends it. What stands in its way is an [*Unavailable].
func Probe(ctx context.Context, base *pgx.ConnConfig) error {
	conn, _, err := connectStream(ctx, base)
	if err != nil {
		return err
	}
	closeConn(conn)
	return nil
}

// OurStream says whether a slot's holder is a [Stream].
func (h Holder) OurStream() bool { return h.Application == applicationName }
