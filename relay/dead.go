package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadLetter is a row that will not be sent unless a person decides so.
type DeadLetter struct {
	Table    string    `json:"table"`
	ID       string    `json:"id"`
	EventID  string    `json:"event_id"`
	Kind     string    `json:"kind"`
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail"`
	Since    time.Time `json:"since"` // when it died
	Gone     bool      `json:"gone"`  // its row has been deleted from the outbox
}

// DeadSelection says which dead letters of an outbox a command is about: IDs, or all (of a reason, if one is given). To a
// change, a reason that no dead letter has is a *NotFoundError, as is an id.
type DeadSelection struct {
	IDs    []string
	Reason string
	// Progress, if set, hears after each transaction but the last how many rows are done.
	Progress func(rows int)
}

// deadSQL selects dead letters: what failures calls dead and the mark does not call pending. $1 ids (NULL: all), $2 reason (empty: any).
const deadSQL = `
SELECT f.row_id, f.event_id, f.kind, f.attempts, f.reason, f.detail, f.dead_at, @o.id IS NULL
  FROM pgrelay.failures f LEFT JOIN @outbox o ON @o.id = f.row_id::@keytype
 WHERE f.outbox = @name AND f.dead_at IS NOT NULL AND NOT f.uncertain AND NOT coalesce(@o.unsettled, false)
   AND ($1::text[] IS NULL OR f.row_id = ANY ($1)) AND ($2 = '' OR f.reason = $2)
 ORDER BY f.dead_at, f.row_id`

// Dead lists dead letters, the oldest first.
func (t *Table) Dead(ctx context.Context, conn *pgx.Conn, s DeadSelection) ([]DeadLetter, error) {
	rows, err := conn.Query(ctx, expander(t).Replace(deadSQL), s.IDs, s.Reason)
	if err != nil {
		return nil, t.explain(err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeadLetter, error) {
		l := DeadLetter{Table: t.Name}
		err := row.Scan(&l.ID, &l.EventID, &l.Kind, &l.Attempts, &l.Reason, &l.Detail, &l.Since, &l.Gone)
		return l, err
	})
	if err != nil {
		return nil, t.explain(err)
	}
	return letters, t.missing(letters, s.IDs)
}

// missing is an error if an id that was asked for is no dead letter.
func (t *Table) missing(letters []DeadLetter, ids []string) error {
	found := map[string]bool{}
	for _, l := range letters {
		found[l.ID] = true
	}
	var missing []string
	for _, id := range ids {
		if !found[id] {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return &NotFoundError{fmt.Sprintf("outbox %s has no dead letter with id %s", t.Name, strings.Join(missing, ", "))}
	}
	return nil
}

// noReason names the reasons that dead letters have, to whoever asked for another.
func (t *Table) noReason(ctx context.Context, conn *pgx.Conn, reason string) error {
	letters, err := t.Dead(ctx, conn, DeadSelection{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, l := range letters {
		there[l.Reason] = true
	}
	what := fmt.Sprintf("outbox %s has no dead letter with reason %s", t.Name, reason)
	if len(there) > 0 {
		what += "; there are " + strings.Join(slices.Sorted(maps.Keys(there)), ", ")
	}
	return &NotFoundError{what}
}

// retrySQL makes dead letters due at once with their attempts forgotten. They keep their generation: if a send of theirs arrived after
// all, its repeat is still known to be one. $1 ids.
const retrySQL = `
WITH hit AS MATERIALIZED (
	SELECT f.row_id, @o.id AS k FROM pgrelay.failures f JOIN @outbox o ON @o.id = f.row_id::@keytype
	 WHERE f.outbox = @name AND f.row_id = ANY ($1::text[]) AND f.dead_at IS NOT NULL AND NOT f.uncertain AND @o.settled
	   FOR NO KEY UPDATE OF o),
due AS (
	UPDATE pgrelay.failures f SET attempts = 0, unknowns = 0, crashes = 0, next_attempt_at = now(), dead_at = NULL, claim = NULL
	  FROM hit h WHERE f.outbox = @name AND f.row_id = h.row_id),
back AS (UPDATE @outbox o SET @unmarked FROM hit h WHERE @o.id = h.k),
woken AS (SELECT pg_notify('` + NotifyChannel + `', @name) WHERE EXISTS (SELECT FROM hit))
SELECT (SELECT count(*) FROM hit), (SELECT count(*) FROM woken)`

// RetryDead sends dead letters again and wakes a running relay. It returns how many.
func (t *Table) RetryDead(ctx context.Context, conn *pgx.Conn, s DeadSelection) (int, error) {
	sql := expander(t).Replace(retrySQL)
	return t.changeDead(ctx, conn, s, func(ids []string) (n int, err error) {
		var woken int
		err = conn.QueryRow(ctx, sql, ids).Scan(&n, &woken)
		return n, err
	})
}

// discardSQL forgets dead letters, and has the relay look for what they held. $1 ids.
const discardSQL = `
WITH gone AS (
	DELETE FROM pgrelay.failures f WHERE f.outbox = @name AND f.row_id = ANY ($1::text[]) AND f.dead_at IS NOT NULL AND NOT f.uncertain RETURNING 1),
woken AS (SELECT pg_notify('` + NotifyChannel + `', @name) WHERE EXISTS (SELECT FROM gone))
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM woken)`

// DiscardDead forgets dead letters: their rows stay as they are and are never sent. A key that one of them held goes on. It returns how many.
func (t *Table) DiscardDead(ctx context.Context, conn *pgx.Conn, s DeadSelection) (int, error) {
	return t.changeDead(ctx, conn, s, func(ids []string) (n int, err error) {
		var woken int
		err = conn.QueryRow(ctx, expander(t).Replace(discardSQL), ids).Scan(&n, &woken)
		return n, err
	})
}

// changeDead does something to dead letters, a thousand at a time.
func (t *Table) changeDead(ctx context.Context, conn *pgx.Conn, s DeadSelection, change func(ids []string) (int, error)) (total int, err error) {
	letters, err := t.Dead(ctx, conn, s)
	if err != nil {
		return 0, err
	}
	if s.Reason != "" && len(letters) == 0 {
		return 0, t.noReason(ctx, conn, s.Reason)
	}
	for len(letters) > 0 {
		n := min(len(letters), changeBatch)
		ids := make([]string, n)
		for i, l := range letters[:n] {
			ids[i] = l.ID
		}
		letters = letters[n:]
		done, err := change(ids)
		if err != nil {
			return total, t.explain(err)
		}
		total += done
		if s.Progress != nil && len(letters) > 0 {
			s.Progress(total)
		}
	}
	return total, nil
}
