package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file completes a file that is about some sections with the ones that it lacks,
// behind it, so that lines count from the first of text.
func file(text string) string {
	for _, section := range []string{
		"database: {url: postgres://relay@localhost/bookings}\n",
		"destinations: {bookings: {type: sqs, queue: bookings}, orders: {type: sqs, queue: orders.fifo}, console: {type: stdout}}\n",
		"outboxes: [{table: pgrelay.outbox_events, routes: [{kind: '*', to: bookings}]}]\n",
	} {
		if name, _, _ := strings.Cut(section, ":"); !strings.Contains("\n"+text, "\n"+name+":") {
			text += section
		}
	}
	return text
}

// destination is a file with one destination, whose keys begin on line 4.
func destination(keys string) string {
	return file("outboxes: [{table: t, routes: [{kind: '*', to: x}]}]\ndestinations:\n  x:\n" + indent(4, keys))
}

// outbox is a file with one outbox, whose keys begin on line 3; it has a route unless keys have.
func outbox(keys string) string {
	if !strings.Contains(keys, "routes:") {
		keys += "\nroutes: [{kind: '*', to: bookings}]"
	}
	return file("outboxes:\n  -\n" + indent(4, keys))
}

// route is a file with one outbox, whose routes begin on line 4.
func route(routes string) string { return outbox("table: t\nroutes:\n" + indent(2, routes)) }

func indent(n int, text string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+pad) + "\n"
}

// requireRefused wants exactly these problems; each begins with its line.
func requireRefused(t *testing.T, text string, env env, want ...string) {
	t.Helper()
	c, err := Parse("f", []byte(text), env.lookUp)
	require.Error(t, err)
	require.Nil(t, c)
	require.IsType(t, Problems{}, err)
	var got []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		got = append(got, strings.TrimPrefix(line, "f:"))
	}
	require.Equal(t, want, got)
}

const noDatabase = "database.url: is empty; write url: ${DATABASE_URL} and set DATABASE_URL, e.g. to postgres://user:password@host:5432/database"

func TestRefusesFilesThatAreNoConfiguration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"empty":            {"", []string{"1: is empty; config.example.yaml shows what belongs in it"}},
		"comments only":    {"# nothing\n", []string{"1: is empty; config.example.yaml shows what belongs in it"}},
		"empty document":   {"---\n", []string{"2: is empty; config.example.yaml shows what belongs in it"}},
		"a list":           {"- database\n", []string{"1: must be a mapping (key: value), not a list"}},
		"a word":           {"database\n", []string{"1: must be a mapping (key: value), not a single value"}},
		"second document":  {file("") + "---\nlog: {level: info}\n", []string{"4: a second document begins here; one file is one configuration"}},
		"broken second":    {file("") + "---\nlog: ]\n", []string{"5: is not YAML: did not find expected node content"}},
		"not closed":       {"log: {level: info\n\n", []string{"1: is not YAML: did not find expected ',' or '}'"}},
		"indented wrongly": {"log:\n  level: info\n format: json\n", []string{"3: is not YAML: did not find expected key"}},
		"no YAML":          {"database: url: x\n", []string{"1: is not YAML: mapping values are not allowed in this context"}},
		"tab":              {"log:\n\tlevel: info\n", []string{"2: is indented with a tab; YAML is indented with spaces"}},
		"tab after level":  {"log:\n  level: info\n\tformat: json\n", []string{"3: is indented with a tab; YAML is indented with spaces"}},
		"tab in brackets":  {file("log: {\n\tlevel: info}\n"), []string{"2: is indented with a tab; YAML is indented with spaces"}},
		"no such anchor":   {"database: {url: *secret}\n", []string{"1: has an alias (*name) whose anchor (&name) is not there; text that begins with * stands in quotes"}},
		"nothing of use": {"log: {level: info}\n", []string{"1: " + noDatabase,
			"1: outboxes: is required: without an outbox there is nothing to relay; begin with pgrelay.outbox_events"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want...)
		})
	}
}

func TestRefusesKeysAndTypes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"unknown, misspelt":   {destination("type: sqs\nquue: x"), `5: destinations.x.quue: unknown key; did you mean "queue"?`},
		"unknown section":     {file("timer: {enabled: true}\n"), "1: timer: unknown key"},
		"misspelt section":    {file("htttp: {}\n"), `1: htttp: unknown key; did you mean "http"?`},
		"other spelling":      {file("relay: {batchSize: 5}\n"), `1: relay.batchSize: unknown key; did you mean "batch_size"?`},
		"odd key":             {file("\"a.b c\": 1\n"), `1: "a.b c": unknown key`},
		"duplicate":           {file("log:\n  level: info\n  level: debug\n"), "3: log.level: is given twice, first on line 2"},
		"duplicate section":   {file("log: {level: info}\nlog: {format: json}\n"), "2: log: is given twice, first on line 1"},
		"key of no text":      {file("log: {1: info}\n"), "1: log: has a key that is not text; put it in quotes"},
		"merge key":           {file("log: {<<: {level: info}}\n"), "1: log: merges with <<; write the keys out (an alias for a whole value, *name, is taken)"},
		"tag":                 {file("log: {level: !!str info}\n"), "1: log.level: has a tag (!…); write the value without it"},
		"null":                {file("log: {level: }\n"), "1: log.level: has no value; leave the key out for the default"},
		"null by tilde":       {file("http: {addr: ~}\n"), "1: http.addr: has no value; leave the key out for the default"},
		"null section":        {file("relay:\n"), "1: relay: has no value; leave the key out for the default"},
		"null entry":          {file("outboxes: [null]\n"), "1: outboxes[0]: has no value; leave the key out for the default"},
		"value for section":   {file("relay: fast\n"), "1: relay: must be a mapping (key: value), not a single value"},
		"list for section":    {file("destinations: [bookings]\n"), "1: destinations: must be a mapping (key: value), not a list"},
		"mapping for list":    {file("outboxes:\n  table: x\n"), "1: outboxes: must be a list (each entry begins with a dash), not a mapping"},
		"mapping for names":   {outbox("table: t\norder_by: {id: 1}"), "4: outboxes[0].order_by: must be names with commas between them, or a list, not a mapping"},
		"list for value":      {file("relay: {batch_size: [1]}\n"), "1: relay.batch_size: must be a single value, not a list"},
		"template not quoted": {route("- {kind: a, to: bookings, group: {{.id}}}"), "5: outboxes[0].routes[0].group: must be text, not a mapping; text with braces or brackets stands in quotes"},
		"number for text":     {file("replication: {slot: 12}\n"), "1: replication.slot: must be text; put it in quotes"},
		"bool for text":       {route("- {kind: true, to: bookings}"), "5: outboxes[0].routes[0].kind: must be text; put it in quotes"},
		"date for text":       {route("- {kind: 2026-01-01, to: bookings}"), "5: outboxes[0].routes[0].kind: must be text; put it in quotes"},
		"octal":               {file("relay: {batch_size: 0100}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"new octal":           {file("relay: {batch_size: 0o100}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"hexadecimal":         {file("relay: {batch_size: 0x10}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"underscores":         {file("relay: {batch_size: 1_000}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"float for whole":     {file("relay: {batch_size: 500.0}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"exponent":            {file("relay: {batch_size: 1e3}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"quoted number":       {file("relay: {batch_size: \"500\"}\n"), "1: relay.batch_size: must be a number, true or false, without quotes"},
		"quoted bool":         {file("replication: {enabled: 'true'}\n"), "1: replication.enabled: must be a number, true or false, without quotes"},
		"word for number":     {file("relay: {batch_size: many}\n"), "1: relay.batch_size: must be a whole number in plain digits"},
		"yes":                 {file("replication: {enabled: yes}\n"), "1: replication.enabled: must be true or false"},
		"off":                 {file("replication: {enabled: off}\n"), "1: replication.enabled: must be true or false"},
		"one":                 {file("replication: {enabled: 1}\n"), "1: replication.enabled: must be true or false"},
		"infinity":            {file("relay: {retry: {multiplier: .inf}}\n"), "1: relay.retry.multiplier: must be a number in plain digits, such as 2 or 0.2"},
		"not a number":        {file("relay: {retry: {jitter: .nan}}\n"), "1: relay.retry.jitter: must be a number in plain digits, such as 2 or 0.2"},
		"duration, no unit":   {file("poller: {interval: 5}\n"), "1: poller.interval: needs a unit (ms, s, m or h), such as 30s"},
		"duration, quoted":    {file("poller: {interval: '5'}\n"), "1: poller.interval: needs a unit (ms, s, m or h), such as 30s"},
		"duration in days":    {file("retention: {published: 7d}\n"), "1: retention.published: must be a duration with its unit (ms, s, m or h), such as 250ms, 30s or 168h"},
		"duration, negative":  {file("poller: {interval: -5s}\n"), "1: poller.interval: must be between 10ms and 1h"},
		"duration, zero":      {file("poller: {interval: 0}\n"), "1: poller.interval: must be between 10ms and 1h"},
		"duration, overflow":  {file("poller: {interval: 9999999999h}\n"), "1: poller.interval: must be a duration with its unit (ms, s, m or h), such as 250ms, 30s or 168h"},
		"size, no unit":       {file("relay: {max_in_flight_bytes: 67108864}\n"), "1: relay.max_in_flight_bytes: needs a unit (B, KiB, MiB, GiB or TiB), such as 64MiB"},
		"size in MB":          {file("relay: {max_in_flight_bytes: 64MB}\n"), "1: relay.max_in_flight_bytes: must be a whole number with its unit (B, KiB, MiB, GiB or TiB), such as 64MiB"},
		"size, negative":      {file("relay: {max_in_flight_bytes: -1MiB}\n"), "1: relay.max_in_flight_bytes: must be a whole number with its unit (B, KiB, MiB, GiB or TiB), such as 64MiB"},
		"size, overflow":      {file("replication: {max_retained_wal: 99999999TiB}\n"), "1: replication.max_retained_wal: must be between 1MiB and 1024TiB"},
		"number, overflow":    {file("relay: {batch_size: 99999999999999999999}\n"), "1: relay.batch_size: must be between 1 and 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestRefusesValuesOutOfRange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"slot":              {file("replication: {slot: My-Slot}\n"), "1: replication.slot: must be 1 to 63 of a-z, 0-9 and _"},
		"slot, long":        {file("replication: {slot: " + strings.Repeat("s", 64) + "}\n"), "1: replication.slot: must be 1 to 63 of a-z, 0-9 and _"},
		"publication":       {file("replication: {publication: ''}\n"), "1: replication.publication: must be a name of 1 to 63 bytes"},
		"publication, long": {file("replication: {publication: " + strings.Repeat("ü", 32) + "}\n"), "1: replication.publication: must be a name of 1 to 63 bytes"},
		"retained":          {file("replication: {max_retained_wal: 16B}\n"), "1: replication.max_retained_wal: must be between 1MiB and 1024TiB"},
		"batch":             {file("relay: {batch_size: 0}\n"), "1: relay.batch_size: must be between 1 and 10000"},
		"in flight":         {file("relay: {max_in_flight_bytes: 1KiB}\n"), "1: relay.max_in_flight_bytes: must be between 1MiB and 16GiB"},
		"shutdown":          {file("relay: {shutdown_timeout: 2h}\n"), "1: relay.shutdown_timeout: must be between 100ms and 1h"},
		"attempts":          {file("relay: {retry: {max_attempts: 0}}\n"), "1: relay.retry.max_attempts: must be between 1 and 10000"},
		"initial":           {file("relay: {retry: {initial: 0s}}\n"), "1: relay.retry.initial: must be between 1ms and 24h"},
		"max below initial": {file("relay: {retry: {initial: 10s, max: 5s}}\n"), "1: relay.retry.max: must not be less than relay.retry.initial"},
		"initial too large": {file("relay: {retry: {initial: 10m}}\n"), "1: relay.retry.initial: must not be more than relay.retry.max, which is 5m where it is not given"},
		"multiplier":        {file("relay: {retry: {multiplier: 0.5}}\n"), "1: relay.retry.multiplier: must be between 1 and 100"},
		"jitter":            {file("relay: {retry: {jitter: 1.1}}\n"), "1: relay.retry.jitter: must be between 0 and 1"},
		"negative jitter":   {file("relay: {retry: {jitter: -0.1}}\n"), "1: relay.retry.jitter: must be between 0 and 1"},
		"sweep":             {file("poller: {sweep_interval: 25h}\n"), "1: poller.sweep_interval: must be between 100ms and 24h"},
		"ledger, quoting":   {outbox("table: t\nledger: a.b.c"), "4: outboxes[0].ledger: has more than two parts; one pgrelay relays the tables of one database, so schema.table is enough"},
		"ledger, empty":     {outbox("table: t\nledger: ''"), "4: outboxes[0].ledger: is empty; leave it out, or name a table such as pgrelay.processed_events"},
		"sends, quoting":    {outbox("table: t\nsends: {table: a.b.c}"), "4: outboxes[0].sends.table: has more than two parts; one pgrelay relays the tables of one database, so schema.table is enough"},
		"sends, expression": {outbox("table: t\nsends: {columns: {recipient: lower(email)}}"), "4: outboxes[0].sends.columns.recipient: must be a column's bare name: no table before it, no quotes, no expression"},
		"sends, twice":      {outbox("table: t\nsends: {columns: {recipient: event_id}}"), "4: outboxes[0].sends.columns.recipient: event_id and recipient can't be the same column"},
		"delivery":          {route("- {kind: a, to: bookings, delivery: once}"), "5: outboxes[0].routes[0].delivery: must be at_least_once or at_most_once"},
		"ledger, short":     {file("retention: {ledger: 24h}\n"), "1: retention.ledger: must not be shorter than retention.published (zero is for ever): an event whose row is still there could go out again"},
		"ledger, for ever":  {file("retention: {published: 0, ledger: 24h}\n"), "1: retention.ledger: must not be shorter than retention.published (zero is for ever): an event whose row is still there could go out again"},
		"claim timeout":     {file("relay: {claim_timeout: 0}\n"), "1: relay.claim_timeout: must be between 1s and 24h"},
		"retention":         {file("retention: {published: -1h}\n"), "1: retention.published: must be between 0s and 87600h"},
		"concurrency":       {destination("{type: stdout, concurrency: 1001}"), "4: destinations.x.concurrency: must be between 1 and 1000"},
		"linger":            {destination("{type: stdout, linger: 61s}"), "4: destinations.x.linger: must be between 0s and 1m"},
		"timeout":           {destination("{type: stdout, timeout: 1ms}"), "4: destinations.x.timeout: must be between 100ms and 10m"},
		"pause":             {destination("{type: stdout, pause: {max: 100ms}}"), "4: destinations.x.pause.max: must not be less than destinations.x.pause.initial"},
		"addr":              {file("http: {addr: 9187}\n"), "1: http.addr: must be text; put it in quotes"},
		"addr, no port":     {file("http: {addr: localhost}\n"), `1: http.addr: must be host:port with a port from 0 to 65535, such as 127.0.0.1:9187, or "" for no server`},
		"addr, port":        {file("http: {addr: 'localhost:65536'}\n"), `1: http.addr: must be host:port with a port from 0 to 65535, such as 127.0.0.1:9187, or "" for no server`},
		"level":             {file("log: {level: inof}\n"), `1: log.level: must be trace, debug, info, warn or error; did you mean "info"?`},
		"format":            {file("log: {format: xml}\n"), "1: log.format: must be json or console"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestReportsEveryProblemOfAFileInItsOrder(t *testing.T) {
	t.Parallel()
	requireRefused(t, `database:
  url: ${DATABASE_URL}
relay:
  batch_size: 0
  retry: {jitter: 2}
destinations:
  bookings: {type: sqs, quue: bookings}
outboxes:
  - table: a b
    routes:
      - {kind: x, to: bokings}
      - {kind: x, to: bookings, body: "{{.a"}
log: {level: loud}
nonsense: 1
`, nil,
		"2: database.url: the variable DATABASE_URL is not set; ${DATABASE_URL:-…} gives it a default",
		"4: relay.batch_size: must be between 1 and 10000",
		"5: relay.retry.jitter: must be between 0 and 1",
		`7: destinations.bookings.quue: unknown key; did you mean "queue"?`,
		`9: outboxes[0].table: must be table or schema.table; a name with other characters than letters, digits and _ stands in double quotes, as in SQL: '"My Table"'`,
		`11: outboxes[0].routes[0].to: there is no destination of that name; did you mean "bookings"?`,
		"12: outboxes[0].routes[1].body: does not parse as a template, line 1: unclosed action",
		"12: outboxes[0].routes[1].kind: is never reached: the route on line 11 takes all of it; put this one first",
		"13: log.level: must be trace, debug, info, warn or error",
		"14: nonsense: unknown key",
	)
}

func TestAProblemIsNotFollowedByWhatFollowsFromIt(t *testing.T) {
	t.Parallel()
	requireRefused(t, "database: postgres://localhost\n"+
		"destination: {bookings: {type: sqs, queue: bookings}}\n"+
		"outboxes: [{table: t, routes: [{kind: '*', to: bookings}]}]\n", nil,
		"1: database: must be a mapping (key: value), not a single value",
		`2: destination: unknown key; did you mean "destinations"?`)
	requireRefused(t, destination("queue: a\nquue: 'b c'\ntype: sqs\nqueue_: x")+"", nil,
		`5: destinations.x.quue: unknown key; did you mean "queue"?`,
		`7: destinations.x.queue_: unknown key; did you mean "queue"?`)
}

func TestRefusesPiecesOfSQLThatCannotBeOne(t *testing.T) {
	t.Parallel()
	const kinds = "outboxes[0].kind: must be one kind for all rows, or {column: …} with the name of a column of the row or of select"
	for name, c := range map[string][]string{
		"semicolon":       {"join: JOIN j ON true;", "4: outboxes[0].join: has a semicolon; it is a piece of a statement, not a statement"},
		"open quote":      {"ready: \"a = 'x\"", "4: outboxes[0].ready: has a quote or comment without an end"},
		"open comment":    {"ready: a /* x", "4: outboxes[0].ready: has a quote or comment without an end"},
		"open dollar":     {"ready: a = $$$$x", "4: outboxes[0].ready: has a quote or comment without an end"},
		"lacks a bracket": {"select: (a", "4: outboxes[0].select: lacks a )"},
		"mixed brackets":  {"select: (a]", "4: outboxes[0].select: has a ] that nothing opens"},
		"empty":           {"select: ' '", "4: outboxes[0].select: is empty; leave it out"},
		"a list":          {"select: [a, b]", "4: outboxes[0].select: must be text, not a list; text with braces or brackets stands in quotes"},
		"no kind":         {"kind: ''", "4: " + kinds},
		"kind of pattern": {"kind: 'a*'", "4: outboxes[0].kind: must be the kind itself, without * or NUL; patterns stand in routes"},
		"kind misspelt":   {"kind: {colum: a}", `4: outboxes[0].kind.colum: unknown key; did you mean "column"?`},
		"kind qualified":  {"kind: {column: o.a}", "4: outboxes[0].kind.column: must be a column's bare name: no table before it, no quotes, no expression"},
		"malformed":       {"on_malformed: dead", `4: outboxes[0].on_malformed: must be dead_letter or stamp`},
		"published":       {"on_published: remove", "4: outboxes[0].on_published: must be stamp or delete"},
		"set alone":       {"set: a = 1", "4: outboxes[0].set: belongs to on_malformed: stamp; a dead letter sets nothing"},
		"set open":        {"on_malformed: stamp\nset: a = (1", "5: outboxes[0].set: lacks a )"},
		"kind twice":      {"kind: a\ncolumns: {event_type: b}", "4: outboxes[0].kind: and columns.event_type both say where the kind is; give one of them"},
		"kind unmatched": {"kind: a\nroutes: [{kind: b, to: bookings}]",
			"5: outboxes[0].routes[0].kind: is never reached: kind, on line 4, makes all rows of the outbox of one kind, which this doesn't match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, outbox("table: t\n"+c[0]), nil, c[1:]...)
		})
	}
}
