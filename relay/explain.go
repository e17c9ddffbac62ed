package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
)

// AliveWithin is how old a leader's last sign of life may be: it shows itself each second.
const AliveWithin = 5 * time.Second

// Surroundings is what explains a row beside the database.
type Surroundings struct {
	MaxAttempts int
	Interval    time.Duration // of the poller
	// ClaimTimeout is after how long the sweep, each so often, takes back a row that somebody else has been processing.
	ClaimTimeout, SweepInterval time.Duration
	// Running is the relay that answered when it was asked, nil if none did.
	Running *State
}

// rowFacts is what the database says about one row, in one snapshot.
type rowFacts struct {
	Now   time.Time
	ID    string
	There bool
	// Filtered says that row security may hide rows from this role.
	Filtered bool

	// Pending is so by its mark, or in flight: Processing by the mark of a table with a status.
	Pending, Due, Processing bool
	// Since is when somebody began to process it, and Status the value of such a table.
	Since  *time.Time
	Status *string
	// Joined and Ready are true where nothing is asked.
	Joined, Ready bool
	// False are the conditions that keep the row from being ready.
	False       []string `db:"-"`
	Published   bool
	PublishedAt *time.Time
	DeadAt      *time.Time // the mark's, where the table has it
	AvailableAt *time.Time // nil where nothing is deferred, or for ever
	Route       int
	OrderingKey *string
	Kind        string

	Failed       bool
	Attempts     int
	Unknowns     int
	Crashes      int
	NextAttempt  *time.Time
	FailedDeadAt *time.Time
	Uncertain    bool
	Reason       string
	Holds        bool // its ordering key, since it is dead
	Detail       string

	ClaimedBy *string // the instance
	ClaimedAt *time.Time
	Leader    *string
	LeaderAt  *time.Time // its last sign of life

	HolderPID   *int // who has the row locked; a prepared transaction has no process
	HolderName  *string
	HolderState *string
	HolderSince *time.Time
	Prepared    *string

	RecordedAt *time.Time // since when its event is in the ledger

	EventID      string
	Sent, Unsent []string // recipients by the claims of its event

	Earlier *string // the first unsettled row in front of it in its line
}

// Explain says why a row is where it is. It reads, in one snapshot, and locks nothing. A value that is no key of the table is
// a *NotFoundError; a row that isn't there is StateNoRow.
func (t *Table) Explain(ctx context.Context, conn *pgx.Conn, id string, around Surroundings) (Explanation, error) {
	var e Explanation
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		f, err := t.readFacts(ctx, tx, id)
		if err != nil {
			return err
		}
		if f.Pending && f.Joined && !f.Ready {
			if f.False, err = t.falseConditions(ctx, tx, f.ID); err != nil {
				return err
			}
		}
		if f.Pending && !t.plain() {
			if err = t.tryBeside(ctx, tx, f.ID); err != nil {
				return err
			}
		}
		e = t.judge(f, around)
		if e.State != StateBehind {
			return nil
		}
		first, err := t.readFacts(ctx, tx, *f.Earlier)
		if err != nil {
			return err
		}
		e.heldBy(t.judge(first, around))
		return nil
	})
	switch {
	case sqlState(err) == lockNotAvailable:
		return t.explainLock(ctx, conn, id)
	case !t.plain() && RowFault(err):
		return t.explainFault(ctx, conn, id, err)
	}
	return e, t.explain(err)
}

// explainFault tells of the user's SQL that fails for a row, unless it is the key that is none.
func (t *Table) explainFault(ctx context.Context, conn *pgx.Conn, id string, fault error) (Explanation, error) {
	if err := conn.QueryRow(ctx, expander(t).Replace(`SELECT ($1::text::@keytype)::text`), id).Scan(&id); err != nil {
		return Explanation{}, t.explain(err)
	}
	return t.judgeFault(id, fault), nil
}

// tryBeside asks for all that stands beside a row, as a claim does.
func (t *Table) tryBeside(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, expander(t).Replace(`SELECT count(j) FROM @outbox o @o.routed WHERE @o.id = $1::text::@keytype`), id)
	return err
}

const lockNotAvailable = "55P03"

// explainLock names who has the table locked against every reader.
func (t *Table) explainLock(ctx context.Context, conn *pgx.Conn, id string) (Explanation, error) {
	rows, err := conn.Query(ctx, `
		SELECT clock_timestamp() AS now, $1::text AS id, x.pid AS holder_pid, a.application_name AS holder_name, a.state AS holder_state,
		       a.xact_start AS holder_since, p.gid AS prepared
		  FROM pg_catalog.pg_locks x
		  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = x.pid
		  LEFT JOIN pg_catalog.pg_locks y ON x.pid IS NULL AND y.virtualtransaction = x.virtualtransaction AND y.locktype = 'transactionid'
		  LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = y.transactionid
		 WHERE x.locktype = 'relation' AND x.relation = $2 AND x.granted AND x.mode = 'AccessExclusiveLock'
		   AND x.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
		 UNION ALL SELECT clock_timestamp(), $1, NULL, NULL, NULL, NULL, NULL LIMIT 1`, id, t.OID)
	if err != nil {
		return Explanation{}, t.explain(err)
	}
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[rowFacts])
	if err != nil {
		return Explanation{}, t.explain(err)
	}
	return t.judgeLock(f), nil
}

func (t *Table) readFacts(ctx context.Context, tx pgx.Tx, id string) (rowFacts, error) {
	rows, err := tx.Query(ctx, expander(t).Replace(factsSQL(t)), id, t.OID)
	if err != nil {
		return rowFacts{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[rowFacts])
}

// factsSQL reads one row and what stands around it. $1 its key, $2 the table. Who has the row locked is known without locking it:
// its xmax is then a transaction that is under way and has a lock on the table of a kind that goes with it. Of several that
// share one lock it tells nothing. Where foreign keys refer to the table ROW SHARE alone may be their check, which holds
// nobody up.
func factsSQL(t *Table) string {
	return `
SELECT clock_timestamp() AS now, i.k::text AS id, @o.id IS NOT NULL AS there, row_security_active($2::oid) AS filtered,
       coalesce(@o.unsettled, false) AS pending, coalesce(@o.processing, false) AS processing, @o.due AS due,
       ` + finite(escape(t.since("o"))) + ` AS since, ` + escape(t.column0("o", t.names.status, "NULL")) + `::text AS status,
       @isjoined AS joined, @isready AS ready,
       coalesce(@o.published, false) AS published, ` + finite(escape(t.column0("o", t.names.publishedAt, "NULL"))) + ` AS published_at,
       ` + finite(escape(t.column0("o", t.names.deadAt, "NULL"))) + ` AS dead_at, ` + finite("@o.available") + ` AS available_at,
       coalesce(@mayberoute, -1) AS route, @o.key::text AS ordering_key,
       coalesce(@o.kind::text, '') AS kind,
       f.row_id IS NOT NULL AS failed, coalesce(f.attempts, 0) AS attempts, coalesce(f.unknowns, 0) AS unknowns, coalesce(f.crashes, 0) AS crashes,
       f.next_attempt_at AS next_attempt, f.dead_at AS failed_dead_at, coalesce(f.uncertain, false) AS uncertain,
       coalesce(f.dead_at IS NOT NULL AND f.holds_key IS NOT NULL, false) AS holds, coalesce(f.reason, '') AS reason, coalesce(f.detail, '') AS detail,
       c.instance::text AS claimed_by, c.claimed_at, l.instance::text AS leader, l.seen_at AS leader_at,
       h.pid AS holder_pid, h.application_name AS holder_name, h.state AS holder_state, h.xact_start AS holder_since, h.gid AS prepared,
       ` + earlierSQL(t) + ` AS earlier, ` + finite(escape(t.recordedAt(t.identity("o")))) + ` AS recorded_at,
       coalesce(@subject, '') AS event_id, ` + escape(t.recipients(true)) + ` AS sent, ` + escape(t.recipients(false)) + ` AS unsent
  FROM (SELECT $1::text::@keytype AS k) i
  LEFT JOIN (@outbox o @o.maybe) ON @o.id = i.k
  LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = i.k::text
  LEFT JOIN pgrelay.leader l ON true
  LEFT JOIN LATERAL (
       SELECT c.instance, c.claimed_at FROM pgrelay.claims c
        WHERE c.outbox = @name AND i.k::text = ANY (c.ids) ORDER BY c.id DESC LIMIT 1) c ON true
  LEFT JOIN LATERAL (
       SELECT x.pid, a.application_name, a.state, a.xact_start, p.gid
         FROM pg_catalog.pg_locks x
         LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = x.pid
         LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid
        WHERE x.locktype = 'transactionid' AND x.granted AND x.mode = 'ExclusiveLock' AND x.transactionid = o.xmax
          AND EXISTS (SELECT FROM pg_catalog.pg_locks r
               WHERE r.virtualtransaction = x.virtualtransaction AND r.locktype = 'relation' AND r.relation = o.tableoid
                 AND (r.mode = 'RowExclusiveLock' OR r.mode = 'RowShareLock'
                      AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = $2)))
        LIMIT 1) h ON true`
}

// falseConditions are those of a row's conditions that keep it from being ready. They are told apart where ready is several
// joined by AND and each of them can be asked alone; else it is the whole.
func (t *Table) falseConditions(ctx context.Context, tx pgx.Tx, id string) ([]string, error) {
	parts := config.SplitAnd(t.cfg.Ready)
	items := make([]string, len(parts))
	for i, part := range parts {
		items[i] = fmt.Sprintf("coalesce(bool_or((%s\n)), false)", part)
	}
	sql := expander(t).Replace(fmt.Sprintf("SELECT ARRAY[%s] FROM (SELECT * FROM @outbox WHERE @id = $1::text::@keytype) o %s\n",
		escape(strings.Join(items, ", ")), escape(t.cfg.Join)))
	var met []bool
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
		return tx.QueryRow(ctx, sql, id).Scan(&met)
	})
	if err != nil && sqlState(err) == "" {
		return nil, err
	}
	var unmet []string
	for i, part := range parts {
		if err == nil && !met[i] {
			unmet = append(unmet, part)
		}
	}
	if len(unmet) == 0 { // no row that the join finds meets them all, or they can't be asked alone
		return []string{strings.TrimSpace(t.cfg.Ready)}, nil
	}
	return unmet, nil
}

// finite is a time that pgx can read: infinity is NULL.
func finite(expr string) string {
	return fmt.Sprintf("CASE WHEN isfinite((%[1]s)::timestamptz) THEN (%[1]s)::timestamptz END", expr)
}

// earlierSQL finds the first row that holds up o, as the claim's gap has it: pending, due and earlier in its line, or dead and holding it.
func earlierSQL(t *Table) string {
	if !t.Ordered() {
		return "NULL::text"
	}
	probe := func(deferral string) string {
		return fmt.Sprintf(`(SELECT @p.id::text AS id, %s FROM @outbox p
			WHERE @p.key = @o.key AND @p.unsettled AND %s AND @p.line = dt.line AND (%s) < (%s) ORDER BY %s LIMIT 1)`,
			aliased(t, "p"), deferral, t.list("p.%s"), t.list("o.%s"), t.list("p.%s"))
	}
	probes := probe("true")
	if a := t.names.availableAt; a != "" {
		probes = probe("p."+escape(quote(a))+" IS NULL") + " UNION ALL " + probe("p."+escape(quote(a))+" <= now()")
	}
	if t.Blocks() {
		probes += " UNION ALL (" + holderSQL(t, "@p.id::text, "+aliased(t, "p"), "@o.key::text", "dt.line", t.list("o.%s")) + ")"
	}
	return fmt.Sprintf("(SELECT e.id FROM (%s) e ORDER BY %s LIMIT 1)", probes, t.list("e.k%d"))
}
