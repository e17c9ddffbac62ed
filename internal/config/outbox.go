package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Orders of a route.
const (
	OrderKey  = "key"
	OrderNone = "none"
)

// What a dead row of a route does to its ordering key.
const (
	OnDeadRelease = "release"
	OnDeadBlock   = "block"
)

// How often a message of a route may arrive where its outcome was unknown.
const (
	AtLeastOnce = "at_least_once"
	AtMostOnce  = "at_most_once"
)

// What becomes of a row that has no message.
const (
	MalformedDead  = "dead_letter"
	MalformedStamp = "stamp"
)

// What becomes of a row that has been delivered.
const (
	PublishedStamp  = "stamp"
	PublishedDelete = "delete"
)

func (v *validator) outboxes() {
	if len(v.c.Outboxes) == 0 {
		v.report("outboxes", "is required: without an outbox there is nothing to relay; begin with pgrelay.outbox_events")
	}
	tables := map[Table]int{}
	for i, o := range v.c.Outboxes {
		key := fmt.Sprintf("outboxes[%d]", i)
		v.table(key+".table", o, tables)
		v.status(key+".status", o.Status)
		v.columns(key, o)
		v.orderBy(key+".order_by", o.OrderBy)
		v.ledger(key+".ledger", o)
		v.sends(key+".sends", o.Sends)
		v.sql(key+".join", o.Join)
		v.sql(key+".select", o.Select)
		v.sql(key+".ready", o.Ready)
		v.rowKind(key, o)
		v.oneOf(key+".on_malformed", o.OnMalformed, MalformedDead, MalformedStamp)
		v.sql(key+".set", o.Set)
		v.oneOf(key+".on_published", o.OnPublished, PublishedStamp, PublishedDelete)
		if o.Set != "" && o.OnMalformed != MalformedStamp {
			v.report(key+".set", "belongs to on_malformed: stamp; a dead letter sets nothing")
		}
		v.routes(key+".routes", o.Routes)
	}
}

func (v *validator) table(key string, o Outbox, seen map[Table]int) {
	if o.Table == "" {
		v.report(key, "is required: table or schema.table")
		return
	}
	table, err := ParseTable(o.Table)
	switch {
	case err != nil:
		v.report(key, "%s", err)
	case seen[table] > 0:
		v.report(key, "has an outbox already, on line %d; give that one the routes of both", seen[table])
	default:
		seen[table] = o.Line
	}
}

// status checks a mapping to somebody's status column. What the column takes is the server's to say.
func (v *validator) status(key string, s Status) {
	if !v.given(key) {
		return
	}
	if problem := bareColumn(s.Column); problem != "" {
		v.report(key+".column", "%s", problem)
	}
	names := []string{"pending", "processing", "published", "dead"}
	values := []string{s.Pending, s.Processing, s.Published, s.Dead}
	for i, name := range names {
		at := key + "." + name
		switch first := slices.Index(values, values[i]); {
		case values[i] == "":
			v.report(at, "is empty; leave it out for its default, or give the value that the column has then")
		case strings.Contains(values[i], "\x00"):
			v.report(at, "has a NUL, which no text in PostgreSQL has")
		case first < i:
			v.report(v.oneGiven(key, name, names[first]), "%s and %s can't be the same value", names[first], name)
		}
	}
}

// written are the columns that the relay writes: none of them can serve as another.
var written = []string{"published_at", "dead_at", "updated_at", "attempts", "next_attempt_at", "last_error", "claimed_at"}

func (v *validator) columns(outbox string, o Outbox) {
	key := outbox + ".columns"
	theirs := map[string]string{"id": "id"}
	if !v.given(outbox + ".status") {
		theirs["published_at"] = "published_at"
		if v.given(key + ".updated_at") {
			v.report(key+".updated_at", "belongs to outboxes with a status, where it tells how long somebody has had a row")
		}
	}
	fields := reflect.ValueOf(o.Columns)
	var order []string
	for i := range fields.NumField() {
		ours := fields.Type().Field(i).Tag.Get("yaml")
		order = append(order, ours)
		if !v.given(key + "." + ours) {
			continue
		}
		name := fields.Field(i).String()
		if problem := bareColumn(name); problem != "" {
			v.report(key+"."+ours, "%s", problem)
			continue
		}
		theirs[ours] = name
	}
	for i, ours := range order {
		if theirs[ours] != "" && theirs[ours] == o.Status.Column {
			v.report(v.oneGiven(outbox, "columns."+ours, "status.column"), "%s and status.column can't be the same column", ours)
		}
		for _, other := range order[:i] {
			shared := theirs[ours] != "" && theirs[ours] == theirs[other]
			if shared && (slices.Contains(written, ours) || slices.Contains(written, other)) {
				v.report(v.oneGiven(key, ours, other), "%s and %s can't be the same column", other, ours)
			}
		}
	}
}

func (v *validator) oneGiven(key, ours, other string) string {
	if v.given(key + "." + ours) {
		return key + "." + ours
	}
	return key + "." + other
}

var direction = regexp.MustCompile(`(?i)\s(asc|desc)$`)

// bareColumn says what is wrong with a column's name, or nothing.
func bareColumn(name string) string {
	switch {
	case name == "":
		return "is empty; leave it out, or name a column"
	case direction.MatchString(name):
		return "must be columns only; the order is always ascending"
	case strings.ContainsAny(name, `".,()`) || strings.TrimSpace(name) != name:
		return "must be a column's bare name: no table before it, no quotes, no expression"
	case !identifier(name):
		return "must be a column's name of 1 to 63 bytes"
	}
	return ""
}

func (v *validator) orderBy(key string, columns []string) {
	if v.given(key) && len(columns) == 0 {
		v.report(key, "is empty; leave it out to order by the key")
	}
	for i, name := range columns {
		at := fmt.Sprintf("%s[%d]", key, i)
		if !v.given(at) {
			at = key // written as one text
		}
		if problem := bareColumn(name); problem != "" {
			v.report(at, "%s", problem)
		} else if slices.Contains(columns[:i], name) {
			v.report(at, "names a column twice")
		}
	}
}

func (v *validator) ledger(key string, o Outbox) {
	switch _, err := ParseTable(o.Ledger); {
	case !v.given(key):
	case o.Ledger == "":
		v.report(key, "is empty; leave it out, or name a table such as pgrelay.processed_events")
	case err != nil:
		v.report(key, "%s", err)
	}
}

func (v *validator) sends(key string, s Sends) {
	if _, err := ParseTable(s.Table); err != nil && v.given(key+".table") {
		v.report(key+".table", "%s", err)
	}
	fields := reflect.ValueOf(s.Columns)
	names := map[string]string{}
	for i := range fields.NumField() {
		ours := fields.Type().Field(i).Tag.Get("yaml")
		at, name := key+".columns."+ours, ours
		if v.given(at) {
			name = fields.Field(i).String()
			if problem := bareColumn(name); problem != "" {
				v.report(at, "%s", problem)
				continue
			}
		}
		if other, taken := names[name]; taken {
			v.report(v.oneGiven(key+".columns", ours, other), "%s and %s can't be the same column", other, ours)
		}
		names[name] = ours
	}
}

// sql checks a piece of SQL as far as that goes without a server.
func (v *validator) sql(key, text string) {
	if !v.given(key) {
		return
	}
	if problem := sqlProblem(text); problem != "" {
		v.report(key, "%s", problem)
	}
}

func (v *validator) rowKind(key string, o Outbox) {
	k := o.Kind
	switch at := key + ".kind"; {
	case !v.given(at):
		return
	case v.given(key + ".columns.event_type"):
		v.report(at, "and columns.event_type both say where the kind is; give one of them")
	case v.given(at+".column") || v.told[at+".column"]:
		if problem := bareColumn(k.Column); problem != "" {
			v.report(at+".column", "%s", problem)
		}
	case k.Constant == "":
		v.report(at, "must be one kind for all rows, or {column: …} with the name of a column of the row or of select")
	case strings.ContainsAny(k.Constant, "*\x00"):
		v.report(at, "must be the kind itself, without * or NUL; patterns stand in routes")
	}
	for i, r := range o.Routes {
		if at := fmt.Sprintf("%s.routes[%d].kind", key, i); k.Constant != "" && r.Kind != "" && !MatchKind(r.Kind, k.Constant) {
			v.report(at, "is never reached: kind, on line %d, makes all rows of the outbox of one kind, which this doesn't match", v.line(key+".kind"))
		}
	}
}

func (v *validator) routes(key string, routes []Route) {
	if len(routes) == 0 {
		v.report(key, `is required: without a route every row would be malformed; {kind: "*", to: …} takes them all`)
	}
	for i, r := range routes {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case r.Kind == "":
			v.report(at+".kind", `is required; "*" takes every kind, the empty one too`)
		case strings.Contains(r.Kind, "\x00"):
			v.report(at+".kind", "has a NUL, which no text in PostgreSQL has")
		}
		for _, earlier := range routes[:i] {
			if earlier.Kind != "" && r.Kind != "" && covers(earlier.Kind, r.Kind) {
				v.report(at+".kind", "is never reached: the route on line %d takes all of it; put this one first", earlier.Line)
				break
			}
		}
		v.oneOf(at+".order", r.Order, OrderKey, OrderNone)
		v.oneOf(at+".on_dead", r.OnDead, OnDeadRelease, OnDeadBlock)
		v.oneOf(at+".delivery", r.Delivery, AtLeastOnce, AtMostOnce)
		if r.OnDead == OnDeadBlock && r.Order == OrderNone {
			v.report(at+".on_dead", "can't be block: with order: none no row waits for another")
		}
		v.to(at, r)
		v.templates(at, r)
	}
}

func (v *validator) to(key string, r Route) {
	if r.To == "" {
		v.report(key+".to", "is required: the name of a destination")
		return
	}
	d, ok := v.c.Destinations[r.To]
	switch {
	case ok:
		v.suits(key, r, d)
	case len(v.c.Destinations) == 0:
		v.report("destinations", "is required: somewhere for the routes to go to")
	default:
		names := slices.Sorted(maps.Keys(v.c.Destinations))
		v.report(key+".to", "there is no destination of that name%s", v.suggest(key+".to", r.To, names))
	}
}

// suits refuses what the destination would ignore or never take.
func (v *validator) suits(key string, r Route, d Destination) {
	standard := d.Type == TypeSQS && !d.FIFO()
	switch {
	case d.Type == TypeSMTP:
		v.suitsMail(key)
		if r.Delivery == AtLeastOnce && v.given(key+".delivery") {
			v.report(key+".delivery", "can't be at_least_once: mail goes at most once to each recipient, because nobody takes a second one back; leave it out")
		}
		return
	case d.Type != TypeSQS && d.Type != TypeStdout, d.Type == TypeSQS && d.Queue == "":
		return // nobody knows yet what it is
	case r.Delay != "" && !standard:
		v.report(key+".delay", "belongs to standard queues; FIFO queues and stdout take no delay of a message")
	}
	if r.DedupID != "" && !d.FIFO() {
		v.report(key+".dedup_id", "belongs to FIFO queues; only they deduplicate")
	}
	if standard && r.Order == OrderKey && v.given(key+".order") {
		v.report(key+".order", "can't be key: a standard queue keeps no order")
	}
	if standard && r.OnDead == OnDeadBlock {
		v.report(key+".on_dead", "can't be block: a standard queue keeps no order")
	}
	if d.Type == TypeSQS {
		v.attributes(key+".attributes", r.Attributes)
	}
}

var (
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	reserved      = regexp.MustCompile(`(?i)^(aws|amazon)\.`)
)

func (v *validator) attributes(key string, attributes map[string]string) {
	const most = 10
	for name := range attributes {
		if len(name) > 256 || !attributeName.MatchString(name) || reserved.MatchString(name) {
			v.report(join(key, name), "is no name that SQS takes: 1 to 256 letters, digits, -, _ and single dots inside, without AWS. or Amazon. at the start")
		}
	}
	if sent := len(attributes) + 2; sent > most {
		v.report(key, "makes %d with event_id and event_type; SQS takes %d", sent, most)
	}
}

func (v *validator) templates(key string, r Route) {
	texts := map[string]string{"body": r.Body, "group": r.Group, "dedup_id": r.DedupID, "delay": r.Delay}
	for name, text := range r.Attributes {
		texts[join("attributes", name)] = text
		if name == "event_id" || name == "event_type" {
			v.report(key+".attributes."+name, "is set by the relay itself; take another name")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text, at := texts[name], key+"."+name
		if !v.given(at) {
			continue
		}
		problem := parseTemplate(text)
		switch {
		case text == "":
			v.report(at, "is empty; leave it out")
		case problem != "" && v.variable[at]:
			v.report(at, "does not parse as a template")
		case problem != "":
			v.report(at, "does not parse as a template, line %s", problem)
		case name == "delay" && !strings.Contains(text, "{{") && !constantDelay(text):
			v.report(at, "must be seconds from 0 to 900 or a duration up to 15m, or a template that renders as one")
		}
	}
}

func constantDelay(text string) bool {
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	return err == nil && d >= 0 && d <= 15*time.Minute
}
