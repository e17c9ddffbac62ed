package check

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/relay"
	"pgrelay/replication"
)

// good is a server with nothing to say about.
var good = serverFacts{
	Version: "17.2", VersionNum: 170002, Role: "app", Database: "shop", PID: 7, BackendPID: 7,
	PlanCacheMode: "force_generic_plan", WALLevel: "logical", MaxSlots: 10, KeepSize: "10GB",
}

func TestServerIsJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*serverFacts)
		level  Level
		text   string
	}{
		"fine":                       {func(*serverFacts) {}, OK, "PostgreSQL 17.2, database shop, role app"},
		"settings lost on the way":   {func(f *serverFacts) { f.PlanCacheMode = "auto" }, Failure, "a pooler stands in front"},
		"another process id":         {func(f *serverFacts) { f.BackendPID = 8 }, Warning, "something stands between"},
		"too old":                    {func(f *serverFacts) { f.VersionNum = 120017 }, Failure, "too old"},
		"a time-out of transactions": {func(f *serverFacts) { f.Timeouts = []string{"transaction_timeout"} }, Warning, "transaction_timeout ends sessions"},
		"clock ahead":                {func(f *serverFacts) { f.Skew = 90 * time.Second }, Warning, "1m30s ahead of"},
		"clock behind":               {func(f *serverFacts) { f.Skew = -90 * time.Second }, Warning, "1m30s behind"},
		"clock nearly right":         {func(f *serverFacts) { f.Skew = -4 * time.Second }, OK, "agree"},
	} {
		f := good
		c.change(&f)
		requireLine(t, judgeServer(f), c.level, c.text, name)
	}
}

func TestSlotIsJudged(t *testing.T) {
	t.Parallel()
	ours := replication.SlotState{Exists: true, Database: "shop", Plugin: "pgoutput", RetainedBytes: 1000}
	for name, c := range map[string]struct {
		change func(*replication.SlotState, *serverFacts)
		level  Level
		text   string
	}{
		"idle": {func(*replication.SlotState, *serverFacts) {}, OK, "nobody reads it"},
		"ours reads it": {func(st *replication.SlotState, _ *serverFacts) {
			st.Holder = replication.Holder{PID: 9, Application: "pgrelay stream"}
		}, OK, "read by process 9"},
		"somebody reads": {func(st *replication.SlotState, _ *serverFacts) {
			st.Holder = replication.Holder{PID: 9, Application: "walreader"}
		}, Failure, "process 9 (walreader)"},
		"invalidated": {func(st *replication.SlotState, _ *serverFacts) { st.Lost, st.LostReason = true, "wal_removed" }, Warning, "lost (wal_removed)"},
		"over budget": {func(st *replication.SlotState, _ *serverFacts) { st.RetainedBytes = 1 << 21 }, Warning, "2.0 MiB"},
		"foreign and lost": {func(st *replication.SlotState, _ *serverFacts) {
			st.Foreign, st.Lost, st.Database = true, true, "other"
		}, Failure, `of database "other"`},
		"not there":             {func(st *replication.SlotState, _ *serverFacts) { st.Exists = false }, OK, "`pgrelay run` makes it"},
		"not there, none free":  {func(st *replication.SlotState, f *serverFacts) { st.Exists, f.Slots = false, 10 }, Failure, "10 of 10"},
		"there, none free":      {func(_ *replication.SlotState, f *serverFacts) { f.Slots = 10 }, OK, "lag"},
		"not there, no logical": {func(st *replication.SlotState, f *serverFacts) { st.Exists, f.WALLevel = false, "replica" }, Skipped, "wal_level"},
	} {
		st, f := ours, good
		c.change(&st, &f)
		requireLine(t, []Line{judgeSlot("pgrelay_shop", st, f, 1<<20)}, c.level, c.text, name)
	}
}

func TestSlotWithoutALimitIsAWarningUnlessItIsTemporary(t *testing.T) {
	t.Parallel()
	require.Equal(t, Warning, judgeKeepSize("-1", false).Level)
	require.Equal(t, OK, judgeKeepSize("-1", true).Level)
	require.Equal(t, OK, judgeKeepSize("10GB", false).Level)
}

func TestPublicationIsJudged(t *testing.T) {
	t.Parallel()
	type state = replication.PublicationState
	alter := []string{"ALTER PUBLICATION p ADD TABLE t"}
	for name, c := range map[string]struct {
		facts publicationFacts
		level Level
		text  string
	}{
		"as it should be":      {publicationFacts{PublicationState: state{Exists: true}}, OK, "carries"},
		"to be made by us":     {publicationFacts{PublicationState: state{Statements: alter}, MayCreate: true, OwnsTables: true}, OK, "makes it"},
		"no CREATE":            {publicationFacts{PublicationState: state{Statements: alter}, OwnsTables: true}, Failure, "may not make it"},
		"tables of others":     {publicationFacts{PublicationState: state{Statements: alter}, MayCreate: true}, Failure, "may not make it"},
		"to be altered by us":  {publicationFacts{PublicationState: state{Exists: true, Statements: alter}, OwnsTables: true}, OK, "runs: ALTER PUBLICATION p"},
		"altering not ours to": {publicationFacts{PublicationState: state{Exists: true, Statements: alter}}, Failure, "doesn't own them"},
		"of somebody else": {publicationFacts{
			PublicationState: state{Exists: true, Statements: alter, Refused: "is not ours to alter"}, OwnsTables: true,
		}, Failure, "is not ours"},
		"a table that can't be": {publicationFacts{PublicationState: state{Exists: true, LeftOut: "table t is unlogged"}}, Warning, "table t is unlogged"},
		"nothing that can be":   {publicationFacts{PublicationState: state{LeftOut: "table t is unlogged"}}, Warning, "table t is unlogged"},
	} {
		requireLine(t, judgePublication(c.facts), c.level, c.text, name)
	}
}

func TestIndexServesWhatBeginsWithItsColumnsAndHoldsPendingRows(t *testing.T) {
	t.Parallel()
	want := relay.Index{Columns: []string{"key", "id", "x"}, Leading: 2, Where: []string{"Done At IS NULL", "dead IS NULL", "key IS NOT NULL"}}
	columns := []string{"key", "id"}
	for name, c := range map[string]struct {
		ix     index
		serves bool
	}{
		"as advised":                {index{[]string{"key", "id", "x"}, `(("Done At" IS NULL) AND (dead IS NULL) AND (key IS NOT NULL))`}, true},
		"less of a predicate":       {index{columns, `("Done At" IS NULL)`}, true},
		"no predicate":              {index{columns, ""}, false},
		"not the mark":              {index{columns, "(dead IS NULL)"}, false},
		"a test that nobody makes":  {index{columns, `(("Done At" IS NULL) AND (kind IS NULL))`}, false},
		"a predicate of its own":    {index{columns, `(("Done At" IS NULL) OR (dead IS NULL))`}, false},
		"a value":                   {index{columns, `(("Done At" IS NULL) AND (id > 5))`}, false},
		"other columns":             {index{[]string{"id", "key"}, `("Done At" IS NULL)`}, false},
		"an expression":             {index{[]string{"", "id"}, `("Done At" IS NULL)`}, false},
		"too few columns":           {index{[]string{"key"}, `("Done At" IS NULL)`}, false},
		"the opposite of the mark":  {index{columns, `("Done At" IS NOT NULL)`}, false},
		"a name that is quoted":     {index{columns, `(("Done At" IS NULL) AND ("key" IS NOT NULL))`}, true},
		"what only looks like that": {index{columns, `(("Done At" IS NULL) AND (("key")::text = 'IS NOT NULL'::text))`}, false},
	} {
		require.Equal(t, c.serves, serves(c.ix, want), name)
	}
}

func TestRefusedConnectionIsJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err       error
		text, fix string
	}{
		"no room":       {&pgconn.PgError{Code: "53300", Message: "too many clients"}, "too many clients", "max_connections"},
		"not in pg_hba": {&pgconn.PgError{Code: "28000", Message: "no pg_hba.conf entry"}, "no pg_hba.conf entry", "pg_hba.conf"},
		"a pooler":      {&pgconn.PgError{Code: "0A000", Message: "unsupported"}, "a pooler answers", "connect directly"},
		"starting":      {&pgconn.PgError{Code: "57P03", Message: "starting up"}, "starting up", "server's log"},
		"a replica":     {pgconn.ErrStandbyConnection, "is a replica", "at the primary"},
		"anything else": {errors.New("tls: handshake failure"), "handshake failure", "database.url"},
	} {
		line := judgeConnect(c.err, "app", "shop")
		require.Equal(t, Failure, line.Level, name)
		require.Contains(t, line.Text, c.text, name)
		require.Contains(t, line.Fix, c.fix, name)
	}
}

func TestDestinationIsJudged(t *testing.T) {
	t.Parallel()
	queue := Destination{Sink: relay.Sink{Name: "q"}, Config: config.Destination{Type: config.TypeSQS, Queue: "invoices"}}
	fault := &relay.Fault{Reason: "wrong_type", Detail: "a queue is FIFO if and only if …"}
	requireLine(t, []Line{judgeDestination(queue, fault, nil)}, Failure, "wrong type", "wrong type")
	requireLine(t, []Line{judgeDestination(queue, errors.New("region: is missing"), nil)}, Failure, "region: is missing", "not made")
	requireLine(t, []Line{judgeDestination(queue, nil, []string{"not allowed"})}, Warning, "not allowed", "a note")
	requireLine(t, []Line{judgeDestination(queue, nil, nil)}, OK, "queue invoices answers", "fine")
}

func TestAddressThatIsTakenIsNamedUnlessByARelay(t *testing.T) {
	t.Parallel()
	body := "# HELP x y\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
	t.Cleanup(server.Close)
	addr := strings.TrimPrefix(server.URL, "http://")
	requireLine(t, checkHTTP(t.Context(), addr), Failure, "cannot be had", "a stranger")
	body = "# HELP x y\npgrelay_leader 1\n"
	requireLine(t, checkHTTP(t.Context(), addr), OK, "a relay serves", "a relay")
	requireLine(t, checkHTTP(t.Context(), "127.0.0.1:0"), OK, "is free", "nobody")
	require.Empty(t, checkHTTP(t.Context(), ""))
	silent := listen(t)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	requireLine(t, checkHTTP(t.Context(), silent.Addr().String()), Failure, "cannot be had", "nobody answers")
}

// requireLine wants one line of a level with a text.
func requireLine(t *testing.T, lines []Line, level Level, text, name string) {
	t.Helper()
	for _, l := range lines {
		if l.Level == level && strings.Contains(l.Text, text) {
			require.Equal(t, level == Failure || level == Warning, l.Fix != "", name)
			return
		}
	}
	require.Fail(t, name, "no line %s with %q in %v", level, text, lines)
}
