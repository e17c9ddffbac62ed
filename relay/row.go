package relay

import "time"

// Row is one outbox row as the claim read it. All values are PostgreSQL's text output.
type Row struct {
	ID      string
	Version string // the row's xmin in flight: what a stamp compares
	// EventID, OrderingKey, Payload and Headers are nil where the column is NULL or not there.
	EventID     *string
	Kind        string // NULL is the empty kind
	OrderingKey *string
	Payload     *string
	Headers     *string
	// Values holds the columns that templates name, by their SQL name; nil is NULL.
	Values map[string]*string

	Attempts   int   // charged tries so far
	Unknowns   int   // tries whose outcome was unknown, counted apart
	Crashes    int   // times that it came back from a dead process
	Generation int64 // above zero after a republish
}

// Column is one column of an outbox table.
type Column struct {
	Name string // as in the catalog, unquoted
	Type string // format_type(atttypid, -1) of the type under any domains
	// Declared is the type as the table has it, with its length.
	Declared string
	Enum     bool
	// NotNull is the column's constraint.
	NotNull bool
	// Written says that the role may set it: it has the right, and the column is not generated.
	Written bool
}

// delivery is one claimed row on its way from claim to stamp. It is owned by one
// stage at a time, so it has no lock.
type delivery struct {
	row   Row
	table *Table
	claim int64  // the row of pgrelay.claims that holds it
	epoch int64  // the lead in which it was claimed
	found string // the row's xmin before the claim, which is its version unless the claim wrote it
	route int    // index into the outbox's routes
	msg   *Message
	// line names the ordering key's line at its destination; empty for a message without order.
	line string
	size int64 // bytes that it is counted with while in flight

	committed time.Time // from the stream, by the server's clock; else when the row was made, zero if nothing tells
	source    string    // "stream" or "poller"
	lsn       uint64    // LSN of the commit that brought it; 0 from the poller

	claimed string // when the claim looked, as the server writes its time
	had     bool   // a failures row was there: the stamp has to look for it
	// recorded says that its event is in the ledger: it is stamped and not sent.
	recorded bool
	unsent   bool    // got its outcome before any call: charges no attempt
	refused  bool    // the table refused its stamp, and that has been logged
	verdict  verdict // set when it leaves the publish stage
}

func (d *delivery) key() rowKey { return rowKey{table: d.table.Name, id: d.row.ID} }

// lineKey names the line of a delivery that has one.
func (d *delivery) lineKey() lineKey {
	return lineKey{d.table, *d.row.OrderingKey, d.table.sinks[d.route]}
}

// verdict is what the stamp does with a delivery.
type verdict struct {
	kind   verdictKind
	delay  time.Duration // until the next try, for retry and unknown
	reason string
	detail string
}

// final says that the row is not tried again by itself.
func (v verdict) final() bool {
	switch v.kind {
	case verdictDelivered, verdictDead, verdictUncertain, verdictDropped:
		return true
	default:
		return false
	}
}

type verdictKind uint8

const (
	// verdictBack releases the row as it was.
	verdictBack verdictKind = iota
	// verdictDelivered marks the row published.
	verdictDelivered
	// verdictRetry charges an attempt and waits for delay.
	verdictRetry
	// verdictUnknown waits for delay, counts an unknown outcome and charges nothing.
	verdictUnknown
	// verdictDead takes the row out of the pending set with its reason.
	verdictDead
	// verdictUncertain takes it out like a dead one: whether it arrived is for a person to find out.
	verdictUncertain
	// verdictDropped marks a malformed row as if it had been delivered.
	verdictDropped
)

// eventID is the id that people and consumers know the event by, empty if the row did not become a message and has none.
func (d *delivery) eventID() string {
	switch {
	case d.msg != nil:
		return d.msg.EventID
	case d.row.EventID != nil:
		return *d.row.EventID
	default:
		return ""
	}
}
