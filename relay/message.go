package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pgrelay/internal/config"
)

// Names of the attributes that the relay sets itself; no header or template may.
const (
	attributeEventID   = "event_id"
	attributeEventType = "event_type"
)

// maxDelay is the longest delay of an SQS message.
const maxDelay = 15 * time.Minute

// builder makes messages of the rows of one outbox. It is immutable and safe for
// concurrent use.
type builder struct {
	table     string
	uuidKey   bool
	types     map[string]string // column to SQL type
	templates []routeTemplates
}

// routeTemplates are the templates of one route, nil where it has none.
type routeTemplates struct {
	body, group, dedupID, delay *rowTemplate
	attributes                  []*rowTemplate // by name
	fields                      []string       // the columns that they name
}

// newBuilder compiles the templates of an outbox's routes against its columns. The
// error joins every problem, each with the route's line and key.
func newBuilder(table string, routes []config.Route, columns []Column, idColumn Column) (*builder, error) {
	b := &builder{table: table, uuidKey: idColumn.Type == "uuid", types: map[string]string{}}
	for _, column := range columns {
		b.types[column.Name] = column.Type
	}
	var problems []error
	for _, route := range routes {
		templates, err := newRouteTemplates(route, b.types)
		problems = append(problems, err)
		b.templates = append(b.templates, templates)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return b, nil
}

func newRouteTemplates(route config.Route, types map[string]string) (routeTemplates, error) {
	var problems []error
	named := map[string]bool{}
	compile := func(key, text string) *rowTemplate {
		if text == "" {
			return nil
		}
		t, err := newRowTemplate(key, text, types)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %s: %w", route.Line, key, err))
			return nil
		}
		for _, field := range t.fields {
			named[field] = true
		}
		return t
	}
	t := routeTemplates{
		body: compile("body", route.Body), group: compile("group", route.Group),
		dedupID: compile("dedup_id", route.DedupID), delay: compile("delay", route.Delay),
	}
	for _, name := range slices.Sorted(maps.Keys(route.Attributes)) {
		key, text := "attributes."+name, route.Attributes[name]
		switch {
		case name == attributeEventID || name == attributeEventType:
			problems = append(problems, fmt.Errorf("line %d: %s: the relay sets this attribute itself", route.Line, key))
		case text == "":
			problems = append(problems, fmt.Errorf("line %d: %s: an attribute can't be empty", route.Line, key))
		default:
			t.attributes = append(t.attributes, compile(key, text))
		}
	}
	t.fields = slices.Sorted(maps.Keys(named))
	return t, errors.Join(problems...)
}

// fields are the columns that any template names, sorted: the claim reads them as text.
func (b *builder) fields() []string {
	var all []string
	for _, t := range b.templates {
		all = append(all, t.fields...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// groupIsKey says that a route's group is the ordering key alone, which is what keeps
// a key's order on a FIFO queue.
// The key's column is named as in the table.
func (b *builder) groupIsKey(route int, orderingKey string) bool {
	group := b.templates[route].group
	return group == nil || group.source == "{{."+orderingKey+"}}"
}

// build makes the message of a row, or says by a *Rejection why there can be none. The
// route is the claim's answer, -1 if none takes the row's kind; fifo says that the
// destination keeps an order.
func (b *builder) build(route int, row *Row, fifo bool) (*Message, error) {
	if route < 0 {
		return nil, &Rejection{"no_route", fmt.Sprintf("no route takes the kind %.100q", row.Kind)}
	}
	r := &rendering{templates: &b.templates[route], row: row}
	m := &Message{Table: b.table, RowID: row.ID, EventID: b.eventID(row), Kind: row.Kind}
	if err := r.read(b.types); err != nil {
		return nil, err
	}
	for _, step := range []func(*Message, bool) error{r.body, r.attributes, r.group, r.dedupID, r.delay} {
		if err := step(m, fifo); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (b *builder) eventID(row *Row) string {
	switch {
	case row.EventID != nil && *row.EventID != "":
		return *row.EventID
	case b.uuidKey:
		return row.ID
	default:
		return b.table + ":" + row.ID
	}
}

// rendering is one row on its way through its route's templates.
type rendering struct {
	templates *routeTemplates
	row       *Row
	columns   templateRow
}

// read makes template values of the columns that the route names.
func (r *rendering) read(types map[string]string) error {
	r.columns = make(templateRow, len(r.templates.fields))
	for _, name := range r.templates.fields {
		value, err := sqlValue(types[name], r.row.Values[name])
		if err != nil {
			return &Rejection{"template_failed", fmt.Sprintf("column %s: %v", name, err)}
		}
		r.columns[name] = value
	}
	return nil
}

// render runs a template; an absent one renders as nothing.
func (r *rendering) render(t *rowTemplate) (string, error) {
	if t == nil {
		return "", nil
	}
	text, err := t.render(r.columns)
	if err != nil {
		return "", &Rejection{"template_failed", fmt.Sprintf("%s: %v", t.key, err)}
	}
	return text, nil
}

func (r *rendering) body(m *Message, _ bool) (err error) {
	if r.templates.body != nil {
		m.Body, err = r.render(r.templates.body)
		return err
	}
	if r.row.Payload == nil {
		return &Rejection{"no_payload", "the payload is NULL and the route has no body template"}
	}
	m.Body = *r.row.Payload
	return nil
}

// attributes are the relay's own, the headers in their stored order, then the route's;
// the later value of a name replaces the earlier one in its place.
func (r *rendering) attributes(m *Message, _ bool) error {
	m.Attributes = append(m.Attributes, Attribute{attributeEventID, m.EventID})
	if m.Kind != "" {
		m.Attributes = append(m.Attributes, Attribute{attributeEventType, m.Kind})
	}
	headers, err := decodeHeaders(r.row.Headers)
	if err != nil {
		return err
	}
	for _, header := range headers {
		if header.Name == attributeEventID || header.Name == attributeEventType {
			return &Rejection{"malformed_headers", fmt.Sprintf("the header %s is an attribute that the relay sets itself", header.Name)}
		}
		if err := m.setAttribute(header); err != nil {
			return err
		}
	}
	for _, t := range r.templates.attributes {
		value, err := r.render(t)
		if err != nil {
			return err
		}
		if err := m.setAttribute(Attribute{strings.TrimPrefix(t.key, "attributes."), value}); err != nil {
			return err
		}
	}
	return nil
}

func (m *Message) setAttribute(attribute Attribute) error {
	if attribute.Value == "" {
		return &Rejection{"empty_attribute", fmt.Sprintf("the attribute %.100q is empty", attribute.Name)}
	}
	at := slices.IndexFunc(m.Attributes, func(a Attribute) bool { return a.Name == attribute.Name })
	if at < 0 {
		m.Attributes = append(m.Attributes, attribute)
		return nil
	}
	m.Attributes[at] = attribute
	return nil
}

// group is the route's template, else the ordering key where the destination keeps an
// order. There a message without group is alone in its own.
func (r *rendering) group(m *Message, fifo bool) error {
	group, err := r.render(r.templates.group)
	if err != nil {
		return err
	}
	if fifo && r.templates.group == nil && r.row.OrderingKey != nil {
		group = *r.row.OrderingKey
	}
	if fifo && group == "" {
		group = m.EventID
	}
	if group != "" {
		group = sqsID(group)
	}
	m.Group = group
	return nil
}

// dedupID is the route's template or the event id, with the generation of a republish,
// which has to get past the first one's deduplication.
func (r *rendering) dedupID(m *Message, fifo bool) error {
	if !fifo {
		return nil
	}
	id, err := r.render(r.templates.dedupID)
	if err != nil {
		return err
	}
	if id == "" {
		id = m.EventID
	}
	if r.row.Generation > 0 {
		id += ":" + strconv.FormatInt(r.row.Generation, 10)
	}
	m.DedupID = sqsID(id)
	return nil
}

func (r *rendering) delay(m *Message, _ bool) error {
	text, err := r.render(r.templates.delay)
	if err != nil {
		return err
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	delay, err := time.ParseDuration(text)
	if err != nil || delay < 0 || delay > maxDelay {
		return &Rejection{"malformed_delay", "delay: it renders neither seconds from 0 to 900 nor a duration up to 15m"}
	}
	m.Delay = delay
	return nil
}

// decodeHeaders reads the headers column: an object of scalars, in stored order, a
// number as its stored text, null left out. NULL and JSON's null are no headers.
func decodeHeaders(text *string) ([]Attribute, error) {
	if text == nil || strings.TrimSpace(*text) == "null" {
		return nil, nil
	}
	malformed := &Rejection{"malformed_headers", "the headers are not a JSON object"}
	if !utf8.ValidString(*text) {
		return nil, malformed
	}
	decoder := json.NewDecoder(strings.NewReader(*text))
	decoder.UseNumber()
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, malformed
	}
	var headers []Attribute
	for decoder.More() {
		key, err := decoder.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return nil, malformed
		}
		value, err := decoder.Token()
		if err != nil {
			return nil, malformed
		}
		switch value := value.(type) {
		case json.Delim:
			return nil, &Rejection{"malformed_headers", fmt.Sprintf("the header %.100q is an object or array; headers are scalars", name)}
		case nil:
		default:
			headers = append(headers, Attribute{name, fmt.Sprint(value)})
		}
	}
	if _, err := decoder.Token(); err != nil || decodeEnd(decoder) != nil {
		return nil, malformed
	}
	return headers, nil
}

// hashedID goes before the hash of an id that SQS doesn't take as it is.
const hashedID = "sha256:"

// sqsID gives an id that SQS takes: 1 to 128 ASCII letters, digits and punctuation.
// One that isn't so becomes "sha256:" and the lower-case hex SHA-256 of its bytes.
// This is for ever: another form would break the order of a group and the
// deduplication of a message across an upgrade.
func sqsID(id string) string {
	allowed := func(r rune) bool { return r > ' ' && r <= '~' }
	if id != "" && len(id) <= 128 && strings.IndexFunc(id, func(r rune) bool { return !allowed(r) }) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashedID + hex.EncodeToString(sum[:])
}
