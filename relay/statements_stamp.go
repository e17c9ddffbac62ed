package relay

// stampSQL gives every delivery of any number of batches its outcome. Parallel arrays: $1 claims, $2 ids, $3 versions,
// $4 outcomes (delivered, retry, unknown, dead, uncertain, dropped, back), $5 delays in seconds, $6 charged attempts, $7 whether a failures row was seen,
// $8 event ids, $9 kinds, $10 reasons, $11 details; $12, $13 the distinct claims and
// the leads that they were made in; and again with the first, $14 the destinations whose line a dead row holds, NULL where it lets it go.
//
// own is the fence: what is not in a claims row any more is not stamped, so every part joins taken, which
// comes from it. Rows that somebody has locked stay in their claims row for the next time. A row whose version
// is not the one that was claimed takes no outcome: if its mark still says pending it is due at once, with a new
// generation. A row that its own table keeps as it was (a trigger may swallow any UPDATE or DELETE) makes the statement fail: let go, it would
// be sent again and again. Where the outbox keeps a ledger, the events of what is marked are written there.
// The claims rows are locked first, as the release does, so that the two cannot deadlock.
const stampSQL = `
WITH own AS MATERIALIZED (
	SELECT c.id, c.epoch, c.ids FROM pgrelay.claims c JOIN unnest($12::bigint[], $13::bigint[]) AS k(id, epoch) ON k.id = c.id AND k.epoch = c.epoch
	 ORDER BY c.id FOR UPDATE OF c),
held AS MATERIALIZED (SELECT own.id AS claim, own.epoch, u.id FROM own CROSS JOIN LATERAL unnest(own.ids) AS u(id)),
given AS MATERIALIZED (
	SELECT g.*, held.epoch
	  FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::int[], $7::bool[], $8::text[],
	       $9::text[], $10::text[], $11::text[], $14::text[])
	    AS g(claim, id, version, outcome, delay, charge, had, event_id, kind, reason, detail, holds) JOIN held USING (claim, id)),
seen AS MATERIALIZED (
	SELECT @o.id::text AS id FROM @outbox o WHERE @o.id = ANY ($2::text[]::@keys) AND (SELECT count(*) FROM own) > 0),
locked AS MATERIALIZED (
	SELECT @o.id AS k, @o.id::text AS id, o.xmin::text AS version, @o.unsettled AS pending, @o.key::text AS okey@event FROM @outbox o
	 WHERE @o.id = ANY ($2::text[]::@keys) AND (SELECT count(*) FROM own) > 0
	   FOR NO KEY UPDATE OF o SKIP LOCKED),
taken AS MATERIALIZED (
	SELECT g.*, l.k, l.pending, l.okey, l.version = g.version AS same FROM given g
	  LEFT JOIN locked l USING (id) LEFT JOIN seen s USING (id)
	 WHERE @freebackl.k IS NOT NULL OR s.id IS NULL),
marked AS (
	@mark taken t
	 WHERE @o.id = t.k AND t.same AND t.pending AND t.outcome = 'delivered' RETURNING @o.id AS k, @marked AS settled)@stamped@dropping@returned,
buried AS (
	UPDATE @outbox o SET @burying FROM taken t
	 WHERE @o.id = t.k AND t.same AND t.pending AND t.outcome IN ('dead', 'uncertain') RETURNING @o.id AS k, @settles AS settled),
written AS MATERIALIZED (SELECT * FROM marked UNION ALL SELECT * FROM buried@orDropped),
healed AS (
	DELETE FROM pgrelay.failures f USING taken t
	 WHERE t.same AND t.outcome IN ('delivered', 'dropped') AND t.had AND f.outbox = @name AND f.row_id = t.id),
failed AS (
	INSERT INTO pgrelay.failures AS f (outbox, row_id, event_id, kind, attempts, unknowns, generation, next_attempt_at, dead_at,
	       uncertain, holds_to, holds_key, claim, epoch, reason, detail)
	SELECT @name, t.id, t.event_id, t.kind,
	       CASE WHEN t.same THEN t.charge ELSE 0 END, CASE WHEN t.same AND t.outcome IN ('unknown', 'uncertain') THEN 1 ELSE 0 END,
	       CASE WHEN NOT t.same THEN nextval('pgrelay.generations') END,
	       CASE WHEN NOT t.same THEN now() WHEN t.outcome NOT IN ('dead', 'uncertain') THEN now() + t.delay * interval '1 second' END,
	       CASE WHEN t.same AND t.outcome IN ('dead', 'uncertain') THEN now() END, t.same AND t.outcome = 'uncertain',
	       t.holds, CASE WHEN t.holds IS NOT NULL THEN t.okey END, t.claim, t.epoch,
	       CASE WHEN t.same THEN t.reason ELSE '' END, CASE WHEN t.same THEN t.detail ELSE '' END
	  FROM taken t
	 WHERE t.k IS NOT NULL AND t.pending AND ((t.same AND t.outcome IN ('retry', 'unknown', 'dead', 'uncertain')) OR (NOT t.same AND t.outcome <> 'back'))
	    ON CONFLICT (outbox, row_id) DO UPDATE SET attempts = f.attempts + excluded.attempts, unknowns = f.unknowns + excluded.unknowns,
	       generation = coalesce(excluded.generation, f.generation), next_attempt_at = excluded.next_attempt_at, dead_at = excluded.dead_at,
	       uncertain = excluded.uncertain,
	       holds_to = excluded.holds_to, holds_key = excluded.holds_key, claim = excluded.claim, epoch = excluded.epoch,
	       reason = excluded.reason, detail = excluded.detail, event_id = excluded.event_id, kind = excluded.kind
	 WHERE (f.claim, f.epoch) IS DISTINCT FROM (excluded.claim, excluded.epoch)),
rest AS MATERIALIZED (
	SELECT h.claim, array_agg(h.id) FILTER (WHERE t.id IS NULL) AS ids
	  FROM held h LEFT JOIN taken t USING (claim, id) GROUP BY h.claim),
shrunk AS (UPDATE pgrelay.claims c SET ids = r.ids FROM rest r WHERE c.id = r.claim AND r.ids IS NOT NULL),
ended AS (DELETE FROM pgrelay.claims c USING rest r WHERE c.id = r.claim AND r.ids IS NULL)
SELECT g.id, CASE WHEN t.id IS NULL THEN 'locked' WHEN t.k IS NULL THEN CASE WHEN g.outcome = 'back' THEN 'done' ELSE 'gone' END
                  WHEN t.same AND t.pending AND t.outcome IN ('delivered', 'dropped', 'dead', 'uncertain')
                       AND t.k NOT IN (SELECT w.k FROM written w WHERE w.settled) THEN (@unwritten)
                  WHEN t.same OR t.outcome = 'back' THEN 'done' WHEN t.pending THEN 'changed' ELSE 'settled' END
  FROM given g LEFT JOIN taken t USING (claim, id)`

// rescueSQL marks what is known to be delivered although its claims row is gone: an asynchronous commit that a server
// crash took back. Only while nobody but this instance has led since the claim. $1 ids, $2 versions, $3 instance, $4 its last epoch,
// $5 the versions that the claims found: where a claim wrote the row, that has been taken back as well.
// It returns what is marked now, by itself or by an earlier stamp whose reply was lost.
const rescueSQL = `
WITH locked AS MATERIALIZED (
	SELECT @o.id AS k, @o.id::text AS id@event FROM @outbox o JOIN unnest($1::text[], $2::text[], $5::text[]) AS g(id, version, found) ON @o.id = g.id::@keytype
	 WHERE (o.xmin::text = g.version AND @o.unsettled OR o.xmin::text = g.found AND @o.pending)
	   AND EXISTS (SELECT FROM pgrelay.leader l WHERE l.instance = $3 AND l.epoch = $4)
	   FOR NO KEY UPDATE OF o SKIP LOCKED),
marked AS (@mark locked l WHERE @o.id = l.k)@rescued,
healed AS (DELETE FROM pgrelay.failures f USING locked l WHERE f.outbox = @name AND f.row_id = l.id)
SELECT id FROM locked
 UNION ALL
SELECT @o.id::text FROM @outbox o WHERE @o.id = ANY ($1::text[]::@keys) AND (@o.unsettled) IS NOT TRUE
   AND EXISTS (SELECT FROM pgrelay.leader l WHERE l.instance = $3 AND l.epoch = $4)`

// releaseSQL takes up the rows of a dead process. $1 ids, $2 alone, $3 claims and $5 their leads (the rows locked by a statement before this
// one in the transaction, else a stamp that it waits for would be counted against), $4 max_attempts. A crash is
// counted for each row; it is an attempt only for a row that was alone in flight. A row that somebody
// has locked is let go uncounted.
const releaseSQL = `
WITH given AS MATERIALIZED (
	SELECT g.id, bool_or(g.alone) AS alone, max(g.claim) AS claim, max(g.epoch) AS epoch
	  FROM unnest($1::text[], $2::bool[], $3::bigint[], $5::bigint[]) AS g(id, alone, claim, epoch) GROUP BY g.id),
hit AS MATERIALIZED (
	SELECT @o.id AS k, g.*, @o.event_id AS event_id, @o.kindalone AS kind, @o.holds AS holds, @o.key::text AS okey,
	       CASE WHEN f.dead_at IS NULL THEN coalesce(f.attempts, 0) ELSE 0 END + g.alone::int AS attempts,
	       g.alone AND CASE WHEN f.dead_at IS NULL THEN coalesce(f.attempts, 0) ELSE 0 END + 1 >= $4 AS dies,
	       CASE WHEN g.alone THEN 'the relay died while this row alone was in flight' ELSE 'the relay died while this row was in flight with others' END AS detail
	  FROM given g JOIN @outbox o ON @o.id = g.id::@keytype
	  LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = g.id
	 WHERE @o.unsettled FOR NO KEY UPDATE OF o SKIP LOCKED),
buried AS (UPDATE @outbox o SET @crashed FROM hit h WHERE @o.id = h.k AND h.dies)@revived,
counted AS (
	INSERT INTO pgrelay.failures AS f (outbox, row_id, event_id, kind, crashes, attempts, next_attempt_at, dead_at,
	       holds_to, holds_key, claim, epoch, reason, detail)
	SELECT @name, h.id, coalesce(h.event_id::text, ''), coalesce(h.kind::text, ''), 1, h.alone::int,
	       CASE WHEN NOT h.dies THEN now() END, CASE WHEN h.dies THEN now() END,
	       CASE WHEN h.dies AND h.okey IS NOT NULL THEN h.holds END, CASE WHEN h.dies AND h.holds IS NOT NULL THEN h.okey END, h.claim, h.epoch,
	       'crashed', h.detail
	  FROM hit h
	    ON CONFLICT (outbox, row_id) DO UPDATE SET attempts = f.attempts + excluded.attempts, crashes = f.crashes + 1,
	       next_attempt_at = excluded.next_attempt_at, dead_at = excluded.dead_at, holds_to = excluded.holds_to, holds_key = excluded.holds_key,
	       claim = excluded.claim, epoch = excluded.epoch,
	       reason = excluded.reason, detail = excluded.detail
	 WHERE (f.claim, f.epoch) IS DISTINCT FROM (excluded.claim, excluded.epoch))
SELECT h.id, coalesce(h.kind::text, ''), h.dies FROM hit h`

// giveUpSQL sets back rows of a table with a status that a claim of this instance has taken and nobody knows of, as its reply was
// lost. $1 ids. One that somebody has locked is left to the sweep.
const giveUpSQL = `
WITH lost AS MATERIALIZED (
	SELECT @o.id AS k FROM @outbox o WHERE @o.id = ANY ($1::text[]::@keys) AND @o.processing FOR NO KEY UPDATE OF o SKIP LOCKED)
UPDATE @outbox o SET @back FROM lost l WHERE @o.id = l.k`
