package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
)

// SendTable is the table of send claims: one row for each recipient of an event of a route that sends at most once, written before
// the send. With sent_at it was sent; without it either a call is under way or its outcome is unknown. It is immutable and
// safe for concurrent use.
type SendTable struct {
	Name string // qualified, quoted where SQL needs it
	// The columns, unquoted; claimedAt and lastError are empty where the table has none.
	eventID, recipient, eventType, claimedAt, sentAt, lastError string
	// The types of those that say what was sent.
	eventIDType, recipientType, eventTypeType string
	sql                                       sendStatements
}

// sendColumn is a column of a send table as the catalog has it.
type sendColumn struct {
	Name, Type  string
	NotNull     bool
	MustBeGiven bool // not null, and nothing fills it
	Written     bool // it takes values
}

// findSends looks up the table of send claims, where a route needs it, and checks that claims can be written to it and found.
// What is wrong with it are the problems; an error is the connection's.
func (t *Table) findSends(ctx context.Context, conn *pgx.Conn, facts keyFacts) (problems []error, err error) {
	if !slices.Contains(t.once, true) {
		return nil, nil
	}
	s := &SendTable{}
	columns, unique, err := s.look(ctx, conn, t.cfg.Sends.Table)
	if errors.Is(err, pgx.ErrNoRows) {
		return []error{&TableError{t.Name, "sends: there is no table " + t.cfg.Sends.Table + ", or this role may not see it", fmt.Sprintf(
			"run: CREATE TABLE %s (event_id text, recipient text, event_type text, claimed_at timestamptz, sent_at timestamptz, last_error text, "+
				"UNIQUE (event_id, recipient, event_type))",
			t.cfg.Sends.Table)}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up sends %s of outbox %s: %w", t.cfg.Sends.Table, t.Name, err)
	}
	for _, p := range slices.Concat(s.mapColumns(t.cfg.Sends.Columns, columns), s.suit(t), s.filled(columns), s.checkUnique(unique)) {
		problems = append(problems, &TableError{t.Name, "sends " + s.Name + ": " + p.detail, p.hint})
	}
	if problem := t.checkIdentity("at_most_once claims each send by the event id", facts); problem != nil {
		problems = append(problems, problem)
	}
	s.sql = newSendStatements(s)
	t.Sends = s
	return problems, nil
}

// look reads the table's columns and the columns of its unique indexes.
func (s *SendTable) look(ctx context.Context, conn *pgx.Conn, given string) (columns []sendColumn, unique [][]string, err error) {
	var oid uint32
	err = conn.QueryRow(ctx, `
		SELECT c.oid, format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.oid = pg_catalog.to_regclass($1) AND c.relkind IN ('r', 'p')`, given).Scan(&oid, &s.Name)
	if err != nil {
		return nil, nil, err
	}
	rows, err := conn.Query(ctx, `
		SELECT a.attname::text, pg_catalog.format_type(b.oid, -1), a.attnotnull, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
		       a.attgenerated = '' AND a.attidentity <> 'a'
		  FROM pg_catalog.pg_attribute a `+baseType+` WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid)
	if err != nil {
		return nil, nil, err
	}
	if columns, err = pgx.CollectRows(rows, pgx.RowToStructByPos[sendColumn]); err != nil {
		return nil, nil, err
	}
	rows, err = conn.Query(ctx, `
		SELECT ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
		              WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) ORDER BY 1)
		  FROM pg_catalog.pg_index i
		 WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL`, oid)
	if err != nil {
		return nil, nil, err
	}
	unique, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
	return columns, unique, err
}

type sendProblem struct{ detail, hint string }

// mapColumns resolves our names to the table's and joins what is missing.
func (s *SendTable) mapColumns(c config.SendColumns, columns []sendColumn) (problems []sendProblem) {
	for _, m := range []struct {
		key, given, add string
		to, typ         *string
		types           []string // that it may have; nil: suit says
	}{
		{"event_id", c.EventID, "text", &s.eventID, &s.eventIDType, nil},
		{"recipient", c.Recipient, "text", &s.recipient, &s.recipientType, nil},
		{"event_type", c.EventType, "text", &s.eventType, &s.eventTypeType, nil},
		{"sent_at", c.SentAt, "timestamptz", &s.sentAt, nil, timeTypes},
		{"claimed_at", c.ClaimedAt, "", &s.claimedAt, nil, timeTypes},
		{"last_error", c.LastError, "", &s.lastError, nil, textTypes},
	} {
		name := cmp.Or(m.given, m.key)
		i := slices.IndexFunc(columns, func(c sendColumn) bool { return c.Name == name })
		fits := i >= 0 && columns[i].Written && (m.types == nil || slices.Contains(m.types, columns[i].Type))
		switch {
		case i >= 0 && !fits && m.given == "" && m.add == "": // it happens to have the name
		case i >= 0 && !columns[i].Written:
			problems = append(problems, sendProblem{
				"its column " + quote(name) + " takes no value, because it is generated", "map another with columns: {" + m.key + ": …}"})
		case i >= 0 && !fits:
			problems = append(problems, sendProblem{fmt.Sprintf("its %s is %s, not %s", quote(name), columns[i].Type, nouns[m.types[0]]),
				fmt.Sprintf("map another with columns: {%s: …}, of one of these types: %s", m.key, strings.Join(m.types, ", "))})
		case m.key == "sent_at" && i >= 0 && columns[i].NotNull:
			problems = append(problems, sendProblem{"its " + quote(name) + " can't be NULL, as it is from the claim until the send",
				fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", s.Name, quote(name))})
		case i >= 0:
			*m.to = name
			if m.typ != nil {
				*m.typ = columns[i].Type
			}
		case m.add != "":
			problems = append(problems, sendProblem{"there is no column " + quote(name),
				fmt.Sprintf("run: ALTER TABLE %s ADD COLUMN %s %s", s.Name, quote(name), m.add)})
		case m.given != "":
			problems = append(problems, sendProblem{fmt.Sprintf("columns.%s: there is no column %s", m.key, quote(name)), "name one that is there, or leave it out"})
		}
	}
	return problems
}

// suit refuses columns that don't take what an outbox has to write there.
func (s *SendTable) suit(t *Table) (problems []sendProblem) {
	if s.eventID != "" && !slices.Contains(textTypes, s.eventIDType) && (s.eventIDType != t.identityType() || !t.identityNotNull()) {
		problems = append(problems, sendProblem{fmt.Sprintf("its %s is %s, which does not take every event id of this outbox", quote(s.eventID), s.eventIDType),
			fmt.Sprintf("map a column of type text, or run: ALTER TABLE %s ALTER COLUMN %s TYPE text", s.Name, quote(s.eventID))})
	}
	for _, c := range [][2]string{{s.recipient, s.recipientType}, {s.eventType, s.eventTypeType}} {
		if c[0] != "" && !slices.Contains(textTypes, c[1]) {
			problems = append(problems, sendProblem{fmt.Sprintf("its %s is %s, not text", quote(c[0]), c[1]),
				fmt.Sprintf("map a column of type text, or run: ALTER TABLE %s ALTER COLUMN %s TYPE text", s.Name, quote(c[0]))})
		}
	}
	return problems
}

// filled refuses columns that the relay has no value for.
func (s *SendTable) filled(columns []sendColumn) (problems []sendProblem) {
	for _, c := range columns {
		if c.MustBeGiven && !slices.Contains([]string{s.eventID, s.recipient, s.eventType, s.claimedAt}, c.Name) {
			problems = append(problems, sendProblem{fmt.Sprintf("its column %s needs a value that a claim does not have", quote(c.Name)),
				fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", s.Name, quote(c.Name))})
		}
	}
	return problems
}

// checkUnique wants one claim for each recipient of an event, whatever else the table is indexed by.
func (s *SendTable) checkUnique(unique [][]string) []sendProblem {
	key := []string{s.eventID, s.recipient, s.eventType}
	if slices.Contains(key, "") {
		return nil // told already
	}
	slices.Sort(key)
	if slices.ContainsFunc(unique, func(columns []string) bool { return slices.Equal(columns, key) }) {
		return nil
	}
	return []sendProblem{{fmt.Sprintf("no unique index is on %s alone, so a send could be claimed twice", s.key("%s")),
		fmt.Sprintf("run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", s.Name, s.key("%s"))}}
}

// key lists the columns that say what was sent.
func (s *SendTable) key(format string) string {
	return fmt.Sprintf(strings.Join([]string{format, format, format}, ", "), quote(s.eventID), quote(s.recipient), quote(s.eventType))
}

// unclaiming is the part of a republish that deletes the claims of sends that were made.
func (s *SendTable) unclaiming() string {
	return fmt.Sprintf(`
unclaimed AS (DELETE FROM %s s USING hit h WHERE s.%s = h.event::%s AND s.%s IS NOT NULL),`, s.Name, quote(s.eventID), s.eventIDType, quote(s.sentAt))
}

// countKept counts the sends of settled rows that a republish leaves claimed.
func (t *Table) countKept(ctx context.Context, conn *pgx.Conn, where string, args []any, force bool) (int, error) {
	if t.Sends == nil {
		return 0, nil
	}
	join := fmt.Sprintf("JOIN %s s ON s.%s = (%s)::%s", t.Sends.Name, quote(t.Sends.eventID), t.identity("o"), t.Sends.eventIDType)
	if force {
		join += fmt.Sprintf(" AND s.%s IS NULL", quote(t.Sends.sentAt))
	}
	return t.countJoined(ctx, conn, join, where, args)
}

// recipients are, as SQL, those to whom the event of o was sent, or of whom nobody knows.
func (t *Table) recipients(sent bool) string {
	s, not := t.Sends, ""
	if s == nil {
		return "'{}'::text[]"
	}
	if sent {
		not = "NOT "
	}
	return fmt.Sprintf("ARRAY(SELECT s.%s::text FROM %s s WHERE s.%s = (%s)::%s AND s.%s IS %sNULL ORDER BY 1)",
		quote(s.recipient), s.Name, quote(s.eventID), t.identity("o"), s.eventIDType, quote(s.sentAt), not)
}
