package relay

import (
	"fmt"
	"slices"
	"strings"

	"pgrelay/internal/config"
)

// mapping holds the table's names for ours, unquoted; empty where the table has no such column.
type mapping struct {
	id, publishedAt, deadAt, eventID, eventType, orderingKey string
	payload, headers, availableAt, createdAt                 string
	status, updatedAt                                        string
	attempts, nextAttemptAt, lastError, claimedAt            string // only written
}

// Types of columns whose values mean something to the relay.
var (
	timeTypes   = []string{"timestamp with time zone", "timestamp without time zone", "date"}
	momentTypes = timeTypes[:2]
	countTypes  = []string{"smallint", "integer", "bigint"}
	textTypes   = []string{"text", "character varying"}
)

// wanted is one column of ours.
type wanted struct {
	key, given string
	to         *string
	types      []string // that it may have; nil: any
	required   bool
	// heeded says that without a column that is there rows would be sent which their producer means to keep.
	heeded bool
	// guessed says that it is only written: a column that happens to have its name is left alone unless it fits and may be written.
	guessed bool
}

func (t *Table) wanted(c config.Columns) []wanted {
	n := &t.names
	return []wanted{
		{key: "id", given: c.ID, to: &n.id, required: true},
		{key: "published_at", given: c.PublishedAt, to: &n.publishedAt, types: timeTypes, required: t.cfg.Status.Column == ""},
		{key: "dead_at", given: c.DeadAt, to: &n.deadAt, types: timeTypes},
		{key: "event_id", given: c.EventID, to: &n.eventID},
		{key: "event_type", given: c.EventType, to: &n.eventType},
		{key: "ordering_key", given: c.OrderingKey, to: &n.orderingKey},
		{key: "payload", given: c.Payload, to: &n.payload},
		{key: "headers", given: c.Headers, to: &n.headers},
		{key: "available_at", given: c.AvailableAt, to: &n.availableAt, types: timeTypes, heeded: true},
		{key: "created_at", given: c.CreatedAt, to: &n.createdAt, types: timeTypes},
		{key: "updated_at", given: c.UpdatedAt, to: &n.updatedAt, types: momentTypes},
		{key: "attempts", given: c.Attempts, to: &n.attempts, types: countTypes, guessed: true},
		{key: "next_attempt_at", given: c.NextAttemptAt, to: &n.nextAttemptAt, types: momentTypes, guessed: true},
		{key: "last_error", given: c.LastError, to: &n.lastError, types: textTypes, guessed: true},
		{key: "claimed_at", given: c.ClaimedAt, to: &n.claimedAt, types: momentTypes, guessed: t.cfg.Status.Column == ""},
	}
}

// mapColumns resolves our column names to the table's and joins what is missing.
func (t *Table) mapColumns(cfg config.Outbox) (problems []error) {
	for _, w := range t.wanted(cfg.Columns) {
		if problem := t.mapColumn(w); problem != nil {
			problems = append(problems, problem)
		}
	}
	for _, name := range cfg.OrderBy {
		if _, ok := t.column(name); !ok {
			problems = append(problems, &TableError{t.Name, fmt.Sprintf("order_by: there is no column %q", name),
				"its columns are " + columnList(t.Columns)})
		}
	}
	t.orderBy = cfg.OrderBy
	if len(t.orderBy) == 1 && t.orderBy[0] == t.names.id {
		t.orderBy = nil
	}
	t.IDColumn, _ = t.column(t.names.id)
	return append(problems, t.mapStatus()...)
}

func (t *Table) mapColumn(w wanted) error {
	name := w.given
	if name == "" {
		name = w.key
	}
	c, ok := t.column(name)
	fits := w.types == nil || slices.Contains(w.types, c.Type)
	switch {
	case !ok && w.given != "":
		return &TableError{t.Name, fmt.Sprintf("columns.%s: there is no column %q", w.key, name), "its columns are " + columnList(t.Columns)}
	case !ok && w.required:
		return &TableError{t.Name, fmt.Sprintf("there is no column %q", name),
			fmt.Sprintf("map it with columns: {%s: …}; its columns are %s", w.key, columnList(t.Columns))}
	case !ok, w.given == "" && !fits && !w.required && !w.heeded:
		return nil
	case w.given == "" && w.guessed && !c.Written:
		t.leftAlone = append(t.leftAlone, name)
		return nil
	case !fits:
		return &TableError{t.Name, fmt.Sprintf("columns.%s: %q is of type %s, not %s", w.key, name, c.Type, nouns[w.types[0]]),
			"name a column of one of these types: " + strings.Join(w.types, ", ")}
	}
	*w.to = name
	return nil
}

// nouns call groups of types by their first one.
var nouns = map[string]string{timeTypes[0]: "a time", countTypes[0]: "an integer", textTypes[0]: "text"}

func columnList(columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}
