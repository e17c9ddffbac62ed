package relay

import (
	"fmt"
	"strings"
)

// keysSQL: $1 ids. Which line each id is of, so that the claim can be told where the
// line's pending entries begin.
const keysSQL = `
SELECT o.id, o.okey, o.line FROM (
	SELECT @o.id::text AS id, @o.key::text AS okey, dt.line
	  FROM @outbox o @o.routed
	 WHERE @o.id = ANY ($1::text[]::@keys)) o
 WHERE o.okey IS NOT NULL AND o.line IS NOT NULL`

// lineSQL: $1 an ordering key, $2 its destination, $3 the line's last settled id where that is remembered. The first pending
// ids of the line.
func lineSQL(t *Table) string {
	low := "$3::bigint IS NULL"
	if t.lows() {
		low = "@o.id > coalesce($3::bigint, '-9223372036854775808')"
	}
	key, _ := t.column(t.names.orderingKey)
	return fmt.Sprintf(`
SELECT @o.id::text FROM @outbox o
 WHERE @o.key = $1::text::%s AND @o.pending AND @o.undeferred AND @o.line = $2::int AND %s
 ORDER BY %s LIMIT %d`, escape(widest(key.Type)), low, t.list("o.%s"), lineKept)
}

// claimSQL is the one claim. $1 ids, none of them in flight (that decision, before the
// snapshot, is what gives exclusivity; SKIP LOCKED only passes over rows that somebody is changing right now),
// $2 instance, $3 rows that each destination would take and then, for each route, 0 while it is paused, $4 bytes, $5 alone,
// $6 ids that this process delivered lately, $7 epoch, and for tables whose lines remember it $8, $9, $10, $11: line keys, their
// destinations, the last settled id of each and when that was claimed.
//
// cand are the rows that may go; gap is, for each line, the first unsettled row in front of or
// between them that is not among them; ok are the candidates in front of their gap, and
// picked as many of those as rooms and bytes allow, always cut from the end of the
// order, so that what goes of a line is a run without holes.
func claimSQL(t *Table) string {
	var b strings.Builder
	found, once, route := "cand", "", "p.route"
	if t.cfg.Join != "" { // which may find several rows for one
		found, once = "found", onceSQL
		route = fmt.Sprintf("CASE WHEN p.several THEN %d ELSE p.route END", routeSeveral)
	}
	b.WriteString(`
WITH ` + found + ` AS MATERIALIZED (
	SELECT @o.id AS id, ` + orderColumns(t) + `, o.xmin::text AS version, rt.route, dt.dest, dt.line, @o.key::text AS okey,
	       @o.event_id AS event_id, @o.kind AS kind, ` + contentColumns(t) + `,
	       coalesce(f.attempts, 0) AS attempts, coalesce(f.unknowns, 0) AS unknowns, coalesce(f.crashes, 0) AS crashes,
	       f.generation, coalesce(f.dead_at IS NOT NULL, false) AS stale, f.row_id IS NOT NULL AS had, ` + sizeExpr(t) + ` AS size, ` + ageExpr(t) + ` AS age
	  FROM @outbox o @o.routed
	  LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = @o.id::text
	 WHERE @o.id = ANY ($1::text[]::@keys) AND @o.pending AND @o.due
	   AND coalesce(($3::int[])[dt.dest + 1], 1) > 0 AND coalesce(($3::int[])[@routeroom + rt.route], 1) > 0
	   AND (f.row_id IS NULL OR f.dead_at IS NOT NULL OR (f.next_attempt_at <= now() AND (f.crashes < 2 OR $5)))@ready
	   FOR NO KEY UPDATE OF o SKIP LOCKED),
` + once)
	cut, run := "true", "1"
	from := "cand c"
	if t.Ordered() {
		b.WriteString(gapSQL(t))
		from = "cand c LEFT JOIN gap g ON g.okey = c.okey AND g.line = c.line"
		run = fmt.Sprintf("CASE WHEN c.okey IS NULL OR c.line IS NULL THEN 1 ELSE row_number() OVER (PARTITION BY c.okey, c.line ORDER BY %s) END", t.list("c.k%d"))
		cut = fmt.Sprintf("(g.okey IS NULL OR (%s) < (%s))", t.list("c.k%d"), t.list("g.k%d"))
	}
	won, version := t.won()
	fmt.Fprintf(&b, `ok AS MATERIALIZED (
	SELECT c.*, row_number() OVER (PARTITION BY c.dest ORDER BY %[1]s) AS nth, sum(c.size) OVER (ORDER BY %[1]s) AS total, %[6]s AS run
	  FROM %[2]s WHERE %[3]s),
picked AS MATERIALIZED (
	SELECT c.*, c.id::text IN (SELECT unnest($6::text[])) AND c.generation IS NULL AS again%[8]s FROM ok c
	 WHERE c.nth <= coalesce(($3::int[])[c.dest + 1], 2147483647) AND c.total - c.size < $4::bigint
	   AND c.run <= greatest(1, least(%[7]d, coalesce(($3::int[])[c.dest + 1], 2147483647) / 2))),
fix AS (
	INSERT INTO pgrelay.failures AS f (outbox, row_id, event_id, kind, generation, next_attempt_at)
	SELECT @name, p.id::text, coalesce(p.event_id::text, ''), coalesce(p.kind::text, ''),
	       CASE WHEN p.again THEN nextval('pgrelay.generations') ELSE p.generation END, now()
	  FROM picked p WHERE p.stale OR p.again
	    ON CONFLICT (outbox, row_id) DO UPDATE SET generation = excluded.generation, next_attempt_at = now(), dead_at = NULL, uncertain = false,
	       attempts = CASE WHEN f.dead_at IS NULL THEN f.attempts ELSE 0 END, unknowns = CASE WHEN f.dead_at IS NULL THEN f.unknowns ELSE 0 END,
	       crashes = CASE WHEN f.dead_at IS NULL THEN f.crashes ELSE 0 END, reason = '', detail = ''
	RETURNING f.row_id, f.generation),%[10]s
c AS (
	INSERT INTO pgrelay.claims (outbox, instance, epoch, ids, alone)
	SELECT @name, $2, $7, array_agg(p.id::text ORDER BY %[4]s), $5 FROM %[11]s HAVING count(*) > 0
	RETURNING id)
SELECT c.id, p.id::text, %[12]s, p.version, %[9]s, p.line IS NOT NULL, p.okey, p.event_id::text, coalesce(p.kind::text, ''), %[5]s,
       CASE WHEN p.stale THEN 0 ELSE p.attempts END, CASE WHEN p.stale THEN 0 ELSE p.unknowns END, CASE WHEN p.stale THEN 0 ELSE p.crashes END,
       coalesce(x.generation, p.generation, 0), p.had OR x.row_id IS NOT NULL, p.size, p.recorded, p.age, now()::text
  FROM %[11]s CROSS JOIN c LEFT JOIN fix x ON x.row_id = p.id::text
 ORDER BY %[4]s`, t.list("c.k%d"), from, cut, t.list("p.k%d"), contentText(t), run, lineRun, recordedColumn(t), route,
		escape(t.writing()), escape(won), version)
	return b.String()
}

// recordedColumn says of a candidate whether its event is in the ledger.
func recordedColumn(t *Table) string {
	if t.Ledger == nil {
		return ", false AS recorded"
	}
	return ", " + escape(t.recordedAt(t.identityOf("c.event_id", "c.id"))) + " IS NOT NULL AS recorded"
}

// onceSQL leaves each row once of what a join has multiplied.
const onceSQL = `cand AS MATERIALIZED (
	SELECT DISTINCT ON (c.id) c.*, count(*) OVER (PARTITION BY c.id) > 1 AS several FROM found c ORDER BY c.id),
`

// gapSQL finds for each line among the candidates the first unsettled row of the line, in front of
// the last candidate, that is not itself a candidate: locked by somebody, in flight, waiting for its retry, or
// simply not asked for; or else the first dead one that holds the line. Rows whose time has not come hold nobody back.
//
// Entries which a held xmin keeps in the index must not be walked again and again, so each walk begins behind what is known to be settled:
// rows up to the line's last settled id, of those that their producer had deferred the ones that were due when that row was claimed. Rows that
// came due since are found by their time, those that were inserted since by their id. Candidates from among what was settled were
// set back by hand: then nothing is known.
func gapSQL(t *Table) string {
	from, known, low, due := "", "false", "NULL::bigint", "NULL::timestamptz"
	if t.lows() {
		from = "LEFT JOIN unnest($8::text[], $9::int[], $10::bigint[], $11::text[]::timestamptz[]) AS l(okey, line, low, due) ON l.okey = c.okey AND l.line = c.line"
		known, low, due = "coalesce(bool_and(c.id > l.low OR c.available > l.due), false)", "min(l.low)", "min(l.due)"
	}
	return fmt.Sprintf(`heads AS MATERIALIZED (
	SELECT DISTINCT ON (c.okey, c.line) c.okey, c.line, c.nkey, %[1]s FROM cand c
	 WHERE c.okey IS NOT NULL AND c.line IS NOT NULL ORDER BY c.okey, c.line, %[2]s),
lows AS MATERIALIZED (
	SELECT c.okey, c.line, %[3]s AS known, %[4]s AS low, %[5]s AS due FROM cand c %[6]s
	 WHERE c.okey IS NOT NULL AND c.line IS NOT NULL GROUP BY c.okey, c.line),
gap AS MATERIALIZED (
	SELECT DISTINCT ON (h.okey, h.line) h.okey, h.line, %[7]s
	  FROM (SELECT heads.*, lows.known, lows.low, lows.due FROM heads JOIN lows USING (okey, line)) h
	 CROSS JOIN LATERAL (%[8]s) g
	 ORDER BY h.okey, h.line, %[7]s),
`, t.list("c.k%d"), t.list("c.k%d DESC"), known, low, due, from, t.list("g.k%d"), strings.Join(gapProbes(t), " UNION ALL "))
}

// gapProbes are the walks that find a gap of a line h, each along an index of its own.
func gapProbes(t *Table) []string {
	walk := func(conditions, order string) string {
		return fmt.Sprintf(`
		SELECT %s FROM @outbox p
		 WHERE @p.key = h.nkey AND @p.unsettled AND %s AND @p.line = h.line
		   AND (%s) < (%s) AND @p.id NOT IN (SELECT id FROM cand) ORDER BY %s`,
			aliased(t, "p"), conditions, t.list("p.%s"), t.list("h.k%d"), order)
	}
	behind := func(otherwise string) string {
		if !t.lows() {
			return "true"
		}
		return "@p.id > CASE WHEN h.known THEN h.low ELSE " + otherwise + " END"
	}
	all, none := "'-9223372036854775808'::bigint", "9223372036854775807"
	order := t.list("p.%s")
	undeferred := "true"
	var probes []string
	if a := t.names.availableAt; a != "" {
		at := "p." + escape(quote(a))
		undeferred = at + " IS NULL"
		since := at + " <= now()"
		if t.lows() {
			since += " AND " + at + " > CASE WHEN h.known THEN h.due ELSE '-infinity' END"
			probes = append(probes, "("+walk(at+" <= now() AND "+behind(none), order)+" LIMIT 1)")
		}
		// By time inside, so that no index of the order is walked for it.
		probes = append(probes, "(SELECT q.* FROM ("+walk(since, at+", @p.id")+") q ORDER BY "+t.list("q.k%d")+" LIMIT 1)")
	}
	probes = append(probes, "("+walk(undeferred+" AND "+behind(all), order)+" LIMIT 1)")
	if t.Blocks() {
		probes = append(probes, "("+holderSQL(t, aliased(t, "p"), "h.okey", "h.line", t.list("h.k%d"))+")")
	}
	return probes
}

// lows says whether lines remember their last settled id: only an integer key alone gives an order in
// which "behind it" is a range of the index.
func (t *Table) lows() bool {
	return t.SequenceKey && len(t.orderBy) == 0 && !t.Conditional() // what becomes ready may be older than what was settled last
}

// orderColumns names the order's columns k0, k1 … and the ordering key in its own type, which
// an index probe needs.
func orderColumns(t *Table) string {
	return aliased(t, "o") + ", @o.key AS nkey, @o.available AS available"
}

func aliased(t *Table, alias string) string {
	var items []string
	for i, c := range t.order() {
		items = append(items, fmt.Sprintf("%s.%s AS k%d", alias, escape(quote(c)), i))
	}
	return strings.Join(items, ", ")
}

// ageExpr is for how many seconds the row has been there to be sent, by the columns that tell: NULL where none does or it is infinite, and for
// one that is sent again, whose beginning nobody knows.
func ageExpr(t *Table) string {
	if t.names.createdAt == "" {
		return "NULL::float8"
	}
	since := "o." + escape(quote(t.names.createdAt)) + "::timestamptz"
	if a := t.names.availableAt; a != "" {
		since = "greatest(" + since + ", o." + escape(quote(a)) + "::timestamptz)"
	}
	return fmt.Sprintf("CASE WHEN f.generation IS NULL AND isfinite(%[1]s) THEN extract(epoch FROM clock_timestamp() - %[1]s)::float8 END", since)
}

// contentColumns keeps payload, headers and template columns as they are (a TOAST pointer costs
// nothing in the CTE); contentText turns those that were picked into text.
func contentColumns(t *Table) string {
	items := []string{escape(t.column0("o", t.names.payload, "NULL::text")) + " AS payload", escape(t.column0("o", t.names.headers, "NULL::text")) + " AS headers"}
	for i, f := range t.builder.fields() {
		items = append(items, fmt.Sprintf("%s AS v%d", escape(t.value("o", f)), i))
	}
	return strings.Join(items, ", ")
}

func contentText(t *Table) string {
	values := make([]string, len(t.builder.fields()))
	for i := range values {
		values[i] = fmt.Sprintf("p.v%d::text", i)
	}
	return "p.payload::text, p.headers::text, ARRAY[" + strings.Join(values, ", ") + "]::text[]"
}

// sizeExpr estimates the bytes that a row costs in memory: exactly for what is long, by twice the stored
// size for what is short (binary jsonb is at most about that much longer as text), and
// rowOverhead for the structures around it.
func sizeExpr(t *Table) string {
	columns := append([]string(nil), t.builder.fields()...)
	for _, c := range []string{t.names.payload, t.names.headers} {
		if c != "" {
			columns = append(columns, c)
		}
	}
	expr := fmt.Sprint(rowOverhead)
	for _, c := range columns {
		col := escape(t.value("o", c))
		expr += fmt.Sprintf(" + coalesce(CASE WHEN pg_column_size(%[1]s) < 1000 THEN 2 * pg_column_size(%[1]s) ELSE octet_length(%[1]s::text) END, 0)", col)
	}
	return "(" + expr + ")::bigint"
}

const rowOverhead = 512

// lineRun is the most rows of a line that one claim takes: they go one after the other, so that a hot key would otherwise hold all
// the room of its destination; for the same reason no line takes more than half of it. At 50
// the claim and stamp between two runs cost a line a few percent of its sends.
const lineRun = 50

// answersSQL says why ids did not come back from a claim. $1 ids, $2 their transactions (32 bits; NULL unknown),
// $3 rooms. The transaction is widened around the snapshot's xmax, and asked for in the same snapshot as the row,
// so that "not yet visible" and "gone" cannot be mistaken for each other.
const answersSQL = `
SELECT i.id,
       CASE WHEN @o.id IS NULL THEN
                 CASE WHEN i.xid IS NULL OR pg_visible_in_snapshot(i.wide::text::xid8, s.snap) THEN 'gone' ELSE 'early' END
            WHEN (@o.pending) IS NOT TRUE THEN 'settled'
            WHEN NOT (@o.due) THEN 'deferred'
            WHEN NOT @isready THEN 'unready'
            WHEN f.dead_at IS NULL AND f.next_attempt_at > now() THEN 'waiting'
            WHEN @o.holder IS NOT NULL THEN 'held'
            WHEN coalesce(($3::int[])[@routeroom + rt.route], 1) <= 0 THEN 'barred'
            WHEN coalesce(($3::int[])[dt.dest + 1], 1) <= 0 THEN 'closed'
            WHEN f.dead_at IS NULL AND f.crashes >= 2 THEN 'suspect'
            ELSE 'again' END,
       CASE WHEN isfinite(w.at) THEN extract(epoch FROM w.at - now())::float8 END,
       dt.dest, CASE WHEN dt.line IS NOT NULL THEN @o.key::text END, rt.route
  FROM (SELECT pg_current_snapshot() AS snap) s
 CROSS JOIN LATERAL (SELECT pg_snapshot_xmax(s.snap)::text::bigint AS xmax) m
 CROSS JOIN LATERAL (SELECT u.id, u.xid,
        m.xmax + ((u.xid - m.xmax % 4294967296 + 6442450944) % 4294967296 - 2147483648) AS wide
        FROM unnest($1::text[], $2::bigint[]) AS u(id, xid)) i
  LEFT JOIN (@outbox o @o.maybe) ON @o.id = i.id::@keytype
  LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = i.id
 CROSS JOIN LATERAL (SELECT CASE WHEN NOT (@o.due) THEN @o.available ELSE f.next_attempt_at END AS at) w`
