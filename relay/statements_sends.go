package relay

import "strings"

// sendStatements are the SQL of one table of send claims. Each takes parallel arrays of what was sent: $1 event ids, $2 recipients,
// $3 event types.
type sendStatements struct{ claim, state, sent, keep, release string }

func newSendStatements(s *SendTable) sendStatements {
	claimedAt, now := "", ""
	if s.claimedAt != "" {
		claimedAt, now = ", "+quote(s.claimedAt), ", now()"
	}
	keep := ""
	x := strings.NewReplacer("@table", s.Name, "@key", s.key("%s"), "@s.event", "s."+quote(s.eventID), "@s.recipient", "s."+quote(s.recipient),
		"@s.type", "s."+quote(s.eventType), "@eventtype", s.eventIDType, "@recipienttype", s.recipientType, "@typetype", s.eventTypeType,
		"@claimedat", claimedAt, "@now", now, "@s.sent", "s."+quote(s.sentAt), "@sent", quote(s.sentAt), "@same", sameSend, "@mine", mineSend)
	if s.lastError != "" {
		keep = x.Replace(x.Replace(strings.ReplaceAll(keepSendSQL, "@lasterror", quote(s.lastError))))
	}
	expand := func(sql string) string { return x.Replace(x.Replace(sql)) } // conditions have words of their own
	return sendStatements{claim: expand(claimSendSQL), state: expand(stateSendSQL), sent: expand(sentSendSQL), keep: keep, release: expand(releaseSendSQL)}
}

// sameSend is the claim s of a send g; mineSend, behind it, is the one that the transaction g.token made and nobody has ended. The
// token is a fence that needs no column: any other claim of the same send has another xmin.
const (
	sameSend = `@s.event = g.event::@eventtype AND @s.recipient = g.recipient::@recipienttype AND @s.type = g.type::@typetype`
	mineSend = `s.xmin = g.token::xid8::xid AND @s.sent IS NULL`
)

// leading is true while nobody but this instance has led since. $4 instance, $5 its last epoch.
const leadingSQL = `EXISTS (SELECT FROM pgrelay.leader l WHERE l.instance = $4 AND l.epoch = $5)`

// claimSendSQL claims sends that nobody has claimed, in the order of their index, so that two instances can't deadlock. It returns the
// places of those that it claimed and its transaction, which is known before it can have committed.
const claimSendSQL = `
WITH given AS MATERIALIZED (
	SELECT DISTINCT ON (2, 3, 4) g.n, g.event::@eventtype AS event, g.recipient::@recipienttype AS recipient, g.type::@typetype AS type
	  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g(event, recipient, type, n) ORDER BY 2, 3, 4, 1),
made AS (
	INSERT INTO @table AS s (@key, @sent@claimedat) SELECT g.event, g.recipient, g.type, NULL@now FROM given g WHERE ` + leadingSQL + `
	 ORDER BY g.event, g.recipient, g.type
	    ON CONFLICT (@key) DO NOTHING RETURNING @s.event AS event, @s.recipient AS recipient, @s.type AS type)
SELECT g.n, pg_current_xact_id()::text FROM given g JOIN made m ON m.event = g.event AND m.recipient = g.recipient AND m.type = g.type`

// stateSendSQL says of sends whether there is a claim and whether it was sent, and whether this instance leads.
const stateSendSQL = `
SELECT g.n, @s.event IS NOT NULL, @s.sent IS NOT NULL, ` + leadingSQL + `
  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g(event, recipient, type, n) LEFT JOIN @table s ON @same`

// sentSendSQL, keepSendSQL and releaseSendSQL end claims by their tokens: $4, or $6 of a release.
const sentSendSQL = `
UPDATE @table s SET @sent = now() FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS g(event, recipient, type, token)
 WHERE @same AND @mine`

// keepSendSQL: $5 why nobody knows whether it arrived.
const keepSendSQL = `
UPDATE @table s SET @lasterror = g.error
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS g(event, recipient, type, token, error) WHERE @same AND @mine`

// releaseSendSQL deletes claims while this instance leads: another may have seen them, and judged by them. It returns the places of
// those whose transaction has not ended yet, so that nobody knows whether there is a claim.
const releaseSendSQL = `
WITH given AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $6::text[]) WITH ORDINALITY AS g(event, recipient, type, token, n)),
gone AS (DELETE FROM @table s USING given g WHERE @same AND @mine AND ` + leadingSQL + `)
SELECT g.n FROM given g WHERE NOT pg_visible_in_snapshot(g.token::xid8, pg_current_snapshot())`
