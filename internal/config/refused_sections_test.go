package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	badTable  = `must be table or schema.table; a name with other characters than letters, digits and _ stands in double quotes, as in SQL: '"My Table"'`
	badQueue  = "must be a queue's name (1 to 80 letters, digits, - and _, with .fifo at the end of a FIFO queue's), ARN or URL"
	badARN    = "must be a queue's ARN of the form arn:aws:sqs:region:account:name"
	badURL    = "must be an http:// or https:// URL without user, query and fragment"
	badColumn = "must be a column's bare name: no table before it, no quotes, no expression"
	badName   = "needs a name of 1 to 63 letters, digits, dots, - and _ that begins with a letter or digit"
)

func TestRefusesDestinations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"no type":            {destination("{queue: a}"), "3: destinations.x.type: is required: sqs, smtp or stdout"},
		"type misspelt":      {destination("type: stdotu"), `4: destinations.x.type: must be sqs, smtp or stdout; did you mean "stdout"?`},
		"type not built":     {destination("type: kafka"), "4: destinations.x.type: must be sqs, smtp or stdout"},
		"no queue":           {destination("type: sqs"), "3: destinations.x.queue: is required: the queue's name, ARN or URL"},
		"stdout with queue":  {destination("type: stdout\nqueue: a"), "5: destinations.x.queue: does not belong to a destination of type stdout"},
		"stdout with region": {destination("type: stdout\nregion: ''"), "5: destinations.x.region: does not belong to a destination of type stdout"},
		"queue's characters": {destination("{type: sqs, queue: my.queue}"), "4: destinations.x.queue: " + badQueue},
		"queue too long":     {destination("{type: sqs, queue: " + strings.Repeat("q", 76) + ".fifo}"), "4: destinations.x.queue: " + badQueue},
		"only a suffix":      {destination("{type: sqs, queue: .fifo}"), "4: destinations.x.queue: " + badQueue},
		"ARN of a topic":     {destination("{type: sqs, queue: 'arn:aws:sns:eu-west-1:123456789012:a'}"), "4: destinations.x.queue: " + badARN},
		"ARN without name":   {destination("{type: sqs, queue: 'arn:aws:sqs:eu-west-1:123456789012:'}"), "4: destinations.x.queue: " + badQueue},
		"URL without name":   {destination("{type: sqs, queue: 'https://sqs.eu-west-1.amazonaws.com'}"), "4: destinations.x.queue: " + badQueue},
		"URL of a file":      {destination("{type: sqs, queue: 'file://localhost/queue'}"), "4: destinations.x.queue: " + badURL},
		"URL with password":  {destination("{type: sqs, queue: 'https://u:p@localhost/1/queue'}"), "4: destinations.x.queue: " + badURL},
		"region":             {destination("{type: sqs, queue: a, region: 'EU West'}"), "4: destinations.x.region: must be a region's name, such as eu-west-1"},
		"endpoint":           {destination("{type: sqs, queue: a, endpoint: 'localhost:4566'}"), "4: destinations.x.endpoint: " + badURL},
		"ARN, other region": {destination("{type: sqs, queue: 'arn:aws:sqs:eu-west-1:123456789012:a', region: us-east-1}"),
			"4: destinations.x.region: contradicts the queue, which names another; leave it out"},
		"URL, other region": {destination("{type: sqs, queue: 'https://sqs.eu-west-1.amazonaws.com/123456789012/a', region: us-east-1}"),
			"4: destinations.x.region: contradicts the queue, which names another; leave it out"},
		"old URL, other region": {destination("{type: sqs, queue: 'https://queue.amazonaws.com/123456789012/a', region: eu-west-1}"),
			"4: destinations.x.region: contradicts the queue, which names another; leave it out"},
		"URL, other endpoint": {destination("{type: sqs, queue: 'http://localhost:4566/000000000000/a', endpoint: 'http://localhost:9324'}"),
			"4: destinations.x.endpoint: contradicts the queue, whose URL is elsewhere; leave it out, or give the queue's name"},
		"URL at AWS, endpoint elsewhere": {destination("{type: sqs, queue: 'https://sqs.eu-west-1.amazonaws.com/123456789012/a', endpoint: 'http://localhost:9324'}"),
			"4: destinations.x.endpoint: contradicts the queue, whose URL is elsewhere; leave it out, or give the queue's name"},
		"ARN, endpoint's region": {destination("{type: sqs, queue: 'arn:aws:sqs:eu-west-1:123456789012:a', endpoint: 'https://sqs.us-east-1.amazonaws.com'}"),
			"4: destinations.x.endpoint: is in another region than the queue"},
		"region, endpoint's region": {destination("{type: sqs, queue: a, region: eu-west-1, endpoint: 'https://vpce-1.sqs.us-east-1.vpce.amazonaws.com'}"),
			"4: destinations.x.endpoint: is in another region than the queue"},
		"name with blanks": {file("destinations: {bookings: {type: stdout}, 'a b': {type: stdout}}\n"), `1: destinations."a b": ` + badName},
		"empty name":       {file("destinations: {bookings: {type: stdout}, '': {type: stdout}}\n"), `1: destinations."": ` + badName},
		"none at all":      {file("destinations: {}\n"), "1: destinations: is required: somewhere for the routes to go to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestRefusesOutboxes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"none": {file("outboxes: []\n"), "1: outboxes: is required: without an outbox there is nothing to relay; begin with pgrelay.outbox_events"},
		"no table": {outbox("order_by: id"),
			"3: outboxes[0].table: is required: table or schema.table"},
		"table with blank":    {outbox("table: my table"), "3: outboxes[0].table: " + badTable},
		"table, quote open":   {outbox(`table: '"t'`), "3: outboxes[0].table: " + badTable},
		"table, empty quotes": {outbox(`table: '""'`), "3: outboxes[0].table: " + badTable},
		"table, dot at end":   {outbox("table: s."), "3: outboxes[0].table: " + badTable},
		"table, digit first":  {outbox("table: s.1t"), "3: outboxes[0].table: " + badTable},
		"table, two quoted":   {outbox(`table: '"a""b"c'`), "3: outboxes[0].table: " + badTable},
		"table with database": {outbox("table: d.s.t"), "3: outboxes[0].table: has more than two parts; one pgrelay relays the tables of one database, so schema.table is enough"},
		"table too long":      {outbox("table: " + strings.Repeat("t", 64)), "3: outboxes[0].table: has a name of more than 63 bytes, which PostgreSQL would cut"},
		"column empty":        {outbox("table: t\ncolumns: {id: ''}"), "4: outboxes[0].columns.id: is empty; leave it out, or name a column"},
		"column qualified":    {outbox("table: t\ncolumns: {id: t.id}"), "4: outboxes[0].columns.id: " + badColumn},
		"column quoted":       {outbox("table: t\ncolumns: {id: '\"ID\"'}"), "4: outboxes[0].columns.id: " + badColumn},
		"column too long":     {outbox("table: t\ncolumns: {id: " + strings.Repeat("i", 64) + "}"), "4: outboxes[0].columns.id: must be a column's name of 1 to 63 bytes"},
		"column misspelt":     {outbox("table: t\ncolumns: {publishd_at: x}"), `4: outboxes[0].columns.publishd_at: unknown key; did you mean "published_at"?`},
		"mark is the status":  {outbox("table: t\nstatus: {column: a}\ncolumns: {last_error: a}"), "5: outboxes[0].columns.last_error: last_error and status.column can't be the same column"},
		"status is the key":   {outbox("table: t\nstatus: {column: id}"), "4: outboxes[0].status.column: id and status.column can't be the same column"},
		"written twice":       {outbox("table: t\ncolumns: {attempts: a, last_error: a}"), "4: outboxes[0].columns.last_error: attempts and last_error can't be the same column"},
		"when it was updated": {outbox("table: t\ncolumns: {updated_at: a}"),
			"4: outboxes[0].columns.updated_at: belongs to outboxes with a status, where it tells how long somebody has had a row"},
		"status without a name":   {outbox("table: t\nstatus: {column: ''}"), "4: outboxes[0].status.column: is empty; leave it out, or name a column"},
		"status qualified":        {outbox("table: t\nstatus: {column: t.status}"), "4: outboxes[0].status.column: " + badColumn},
		"status misspelt":         {outbox("table: t\nstatus: {pendng: A}"), `4: outboxes[0].status.pendng: unknown key; did you mean "pending"?`},
		"status is a name":        {outbox("table: t\nstatus: status"), "4: outboxes[0].status: must be a mapping (key: value), not a single value"},
		"empty value":             {outbox("table: t\nstatus: {processing: ''}"), "4: outboxes[0].status.processing: is empty; leave it out for its default, or give the value that the column has then"},
		"code without quotes":     {outbox("table: t\nstatus: {pending: 0}"), "4: outboxes[0].status.pending: must be text; put it in quotes"},
		"value twice":             {outbox("table: t\nstatus: {pending: A, dead: A}"), "4: outboxes[0].status.dead: pending and dead can't be the same value"},
		"value of a default":      {outbox("table: t\nstatus:\n  pending: FAILED"), "5: outboxes[0].status.pending: pending and dead can't be the same value"},
		"kept too long":           {outbox("table: t\nretention: 87601h"), "4: outboxes[0].retention: must be between 0s and 87600h"},
		"kept longer than ledger": {outbox("table: t\nledger: l\nretention: 169h") + "retention: {ledger: 168h}\n", "5: outboxes[0].retention: must not be longer than retention.ledger (zero is for ever): an event whose row is still there could go out again"},
		"mark is the key":         {outbox("table: t\ncolumns: {published_at: id}"), "4: outboxes[0].columns.published_at: id and published_at can't be the same column"},
		"mark is a death mark":    {outbox("table: t\ncolumns: {published_at: done_at, dead_at: done_at}"), "4: outboxes[0].columns.dead_at: published_at and dead_at can't be the same column"},
		"death mark by default": {outbox("table: t\ncolumns: {dead_at: published_at}"),
			"4: outboxes[0].columns.dead_at: published_at and dead_at can't be the same column"},
		"order_by empty":      {outbox("table: t\norder_by: []"), "4: outboxes[0].order_by: is empty; leave it out to order by the key"},
		"order_by no text":    {outbox("table: t\norder_by: ''"), "4: outboxes[0].order_by: is empty; leave it out, or name a column"},
		"order_by descending": {outbox("table: t\norder_by: created_at DESC, id"), "4: outboxes[0].order_by: must be columns only; the order is always ascending"},
		"order_by expression": {outbox("table: t\norder_by: lower(name)"), "4: outboxes[0].order_by: " + badColumn},
		"order_by twice":      {outbox("table: t\norder_by: id, id"), "4: outboxes[0].order_by: names a column twice"},
		"order_by in a list":  {outbox("table: t\norder_by:\n  - id\n  - o.x"), "6: outboxes[0].order_by[1]: " + badColumn},
		"no routes":           {file("outboxes:\n  - table: t\n"), `2: outboxes[0].routes: is required: without a route every row would be malformed; {kind: "*", to: …} takes them all`},
		"same table": {file("outboxes:\n" +
			"  - {table: S.t, routes: [{kind: '*', to: bookings}]}\n" +
			"  - {table: s.\"t\", routes: [{kind: '*', to: bookings}]}\n"),
			"3: outboxes[1].table: has an outbox already, on line 2; give that one the routes of both"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestRefusesJobs(t *testing.T) {
	t.Parallel()
	job := func(text string) string { return file("scheduler: {jobs: [" + text + "]}\n") }
	const name = "1: scheduler.jobs[0].name: must be 1 to 50 letters, digits, dots, - and _, with a letter or digit first"
	for what, test := range map[string]struct{ text, want string }{
		"no name":       {job("{every: 5s, sql: SELECT 1}"), "1: scheduler.jobs[0].name: is required: logs and metrics call the job by it"},
		"blanks":        {job("{name: a b, every: 5s, sql: SELECT 1}"), name},
		"long name":     {job("{name: " + strings.Repeat("x", 51) + ", every: 5s, sql: SELECT 1}"), name},
		"same name":     {job("{name: a, every: 5s, sql: SELECT 1}, {name: a, every: 5s, sql: SELECT 1}"), "1: scheduler.jobs[1].name: is another job's name already"},
		"not how often": {job("{name: a, sql: SELECT 1}"), "1: scheduler.jobs[0].every: is required: how often the job runs, such as 5s"},
		"too often":     {job("{name: a, every: 99ms, sql: SELECT 1}"), "1: scheduler.jobs[0].every: must be between 100ms and 720h"},
		"too seldom":    {job("{name: a, every: 721h, sql: SELECT 1}"), "1: scheduler.jobs[0].every: must be between 100ms and 720h"},
		"no SQL":        {job("{name: a, every: 5s}"), "1: scheduler.jobs[0].sql: is required: the statements that put due work into an outbox"},
		"blank SQL":     {job("{name: a, every: 5s, sql: ' '}"), "1: scheduler.jobs[0].sql: is required: the statements that put due work into an outbox"},
		"cron":          {job("{name: a, cron: '* * * * *', every: 5s, sql: SELECT 1}"), "1: scheduler.jobs[0].cron: unknown key"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestRefusesRoutes(t *testing.T) {
	t.Parallel()
	many := "attributes: {"
	for i := range 9 {
		many += fmt.Sprintf("a%d: x, ", i)
	}
	many += "}"
	for name, test := range map[string]struct{ text, want string }{
		"no kind":           {"- to: bookings", `5: outboxes[0].routes[0].kind: is required; "*" takes every kind, the empty one too`},
		"empty kind":        {"- {kind: '', to: bookings}", `5: outboxes[0].routes[0].kind: is required; "*" takes every kind, the empty one too`},
		"kind with NUL":     {`- {kind: "a\0", to: bookings}`, `5: outboxes[0].routes[0].kind: has a NUL, which no text in PostgreSQL has`},
		"no to":             {"- kind: a", "5: outboxes[0].routes[0].to: is required: the name of a destination"},
		"to nowhere":        {"- kind: a\n  to: printer", "6: outboxes[0].routes[0].to: there is no destination of that name"},
		"to misspelt":       {"- kind: a\n  to: bookigns", `6: outboxes[0].routes[0].to: there is no destination of that name; did you mean "bookings"?`},
		"order":             {"- {kind: a, to: orders, order: any}", "5: outboxes[0].routes[0].order: must be key or none"},
		"behind everything": {"- {kind: '*', to: bookings}\n- {kind: a, to: bookings}", "6: outboxes[0].routes[1].kind: is never reached: the route on line 5 takes all of it; put this one first"},
		"behind its kinds":  {"- {kind: 'a*c', to: bookings}\n- {kind: 'ab*c', to: bookings}", "6: outboxes[0].routes[1].kind: is never reached: the route on line 5 takes all of it; put this one first"},
		"same kind":         {"- {kind: a, to: bookings}\n- {kind: a, to: console}", "6: outboxes[0].routes[1].kind: is never reached: the route on line 5 takes all of it; put this one first"},
		"body":              {"- kind: a\n  to: bookings\n  body: '{{.a'", "7: outboxes[0].routes[0].body: does not parse as a template, line 1: unclosed action"},
		"body empty":        {"- {kind: a, to: bookings, body: ''}", "5: outboxes[0].routes[0].body: is empty; leave it out"},
		"function":          {"- {kind: a, to: bookings, body: '{{jsn .a}}'}", `5: outboxes[0].routes[0].body: does not parse as a template, line 1: function "jsn" not defined`},
		"attribute":         {"- kind: a\n  to: bookings\n  attributes:\n    b: '{{end}}'", "8: outboxes[0].routes[0].attributes.b: does not parse as a template, line 1: unexpected {{end}}"},
		"attribute empty":   {"- {kind: a, to: console, attributes: {b: ''}}", "5: outboxes[0].routes[0].attributes.b: is empty; leave it out"},
		"attribute's name": {"- {kind: a, to: bookings, attributes: {Amazon.b: c}}",
			`5: outboxes[0].routes[0].attributes."Amazon.b": is no name that SQS takes: 1 to 256 letters, digits, -, _ and single dots inside, without AWS. or Amazon. at the start`},
		"attribute of ours": {"- {kind: a, to: console, attributes: {event_id: c}}", "5: outboxes[0].routes[0].attributes.event_id: is set by the relay itself; take another name"},
		"attributes":        {"- {kind: a, to: bookings, " + many + "}", "5: outboxes[0].routes[0].attributes: makes 11 with event_id and event_type; SQS takes 10"},
		"delay to FIFO":     {"- {kind: a, to: orders, delay: 5s}", "5: outboxes[0].routes[0].delay: belongs to standard queues; FIFO queues and stdout take no delay of a message"},
		"delay to stdout":   {"- {kind: a, to: console, delay: 5s}", "5: outboxes[0].routes[0].delay: belongs to standard queues; FIFO queues and stdout take no delay of a message"},
		"delay too long":    {"- {kind: a, to: bookings, delay: 16m}", "5: outboxes[0].routes[0].delay: must be seconds from 0 to 900 or a duration up to 15m, or a template that renders as one"},
		"delay negative":    {"- {kind: a, to: bookings, delay: '-1'}", "5: outboxes[0].routes[0].delay: must be seconds from 0 to 900 or a duration up to 15m, or a template that renders as one"},
		"dedup to standard": {"- {kind: a, to: bookings, dedup_id: x}", "5: outboxes[0].routes[0].dedup_id: belongs to FIFO queues; only they deduplicate"},
		"on_dead":           {"- {kind: a, to: orders, on_dead: stop}", "5: outboxes[0].routes[0].on_dead: must be release or block"},
		"on_dead unordered": {"- {kind: a, to: orders, on_dead: block, order: none}", "5: outboxes[0].routes[0].on_dead: can't be block: with order: none no row waits for another"},
		"on_dead standard":  {"- {kind: a, to: bookings, on_dead: block}", "5: outboxes[0].routes[0].on_dead: can't be block: a standard queue keeps no order"},
		"order of standard": {"- {kind: a, to: bookings, order: key}", "5: outboxes[0].routes[0].order: can't be key: a standard queue keeps no order"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, route(test.text), nil, test.want)
		})
	}
}

func TestRefusesConnectionStringsWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	const asURL = "is no URL that PostgreSQL's clients take; check host, port and parameters%s, and percent-encode special characters of the password (/ is %%2F, @ is %%40, %% is %%25)"
	const asPairs = "is neither a postgres:// URL nor keyword=value pairs that PostgreSQL's clients take%s; a value with blanks stands in single quotes"
	for name, test := range map[string]struct{ url, want string }{
		"slash in password": {"postgres://relay:hunter/2@db/bookings", fmt.Sprintf(asURL, ", port first")},
		"bad percent":       {"postgres://relay:hunter%2@db/bookings", fmt.Sprintf(asURL, "")},
		"bad parameter":     {"postgres://relay:hunter2@db/bookings?sslmode=perhaps", fmt.Sprintf(asURL, ", sslmode first")},
		"bad pool":          {"postgres://relay:hunter2@db/bookings?pool_max_conns=hunter2", fmt.Sprintf(asURL, ", pool_max_conns first")},
		"ports and hosts":   {"postgres://relay:hunter2@a,b,c/bookings?port=1,2", fmt.Sprintf(asURL, ", port first")},
		"bad keyword":       {"host=db password=hunter 2", fmt.Sprintf(asPairs, "")},
		"bad port":          {"host=db port=hunter2", fmt.Sprintf(asPairs, ", port first")},
		"a word":            {"hunter2", fmt.Sprintf(asPairs, "")},
		"missing file":      {"postgres://relay:hunter2@db/bookings?sslmode=verify-full&sslrootcert=/hunter2", "names a file that can't be read (sslrootcert, sslcert, sslkey or a service file)"},
		"empty":             {"", strings.TrimPrefix(noDatabase, "database.url: ")},
		"blank":             {" \n", strings.TrimPrefix(noDatabase, "database.url: ")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, file("database:\n  url: ${DATABASE_URL}\n"), env{"DATABASE_URL": test.url}, "2: database.url: "+test.want)
			require.NotContains(t, test.want, "hunter")
		})
	}
}

func TestProblemsNeverHoldWhatAVariableHolds(t *testing.T) {
	t.Parallel()
	secret := env{"V": "bokings", "T": "{{hunter2"}
	requireRefused(t, route("- {kind: a, to: '${V}', body: '${T}', delay: '${V}'}"), secret,
		"5: outboxes[0].routes[0].body: does not parse as a template",
		"5: outboxes[0].routes[0].delay: must be seconds from 0 to 900 or a duration up to 15m, or a template that renders as one",
		"5: outboxes[0].routes[0].to: there is no destination of that name")
}
