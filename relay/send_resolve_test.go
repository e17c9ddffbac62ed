package relay

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// doubtfulMail is a running relay and a row of its mail of which nobody knows whether it arrived at lost@x.
func doubtfulMail(t *testing.T) (f *fixture, id, event string) {
	t.Helper()
	f = newFixture(t, toMail)
	f.pubs["mail"].script(byName(0))
	f.start()
	id = f.one(insertMail, `["ann@x", "lost@x", "bob@x"]`, 1)
	require.Contains(t, f.ends(id), "UNCERTAIN")
	return f, id, f.one(`SELECT event_id::text FROM pgrelay.outbox_events WHERE id::text = $1`, id)
}

// heldMail is a running relay and a row whose send to ann@x is claimed, and has no answer before the recorder's hold is closed.
func heldMail(t *testing.T) (f *fixture, id string) {
	t.Helper()
	f = newFixture(t, toMail)
	f.pubs["mail"].hold = make(chan struct{})
	f.start()
	id = f.one(insertMail, `["ann@x"]`, 1)
	pgtest.Eventually(t, longEnough, func() bool {
		f.offer(id)
		return f.one(`SELECT count(*)::text FROM pgrelay.notification_sends`) == "1"
	}, "its send is claimed")
	return f, id
}

func (f *fixture) resolve(d Decision) (Resolved, error) {
	return ResolveSends(context.Background(), f.conn, f.relay.Tables(), d)
}

// listed are the sends that are listed, as recipient, state and row.
func (f *fixture) listed(uncertain bool) string {
	f.t.Helper()
	sends, err := ListSends(context.Background(), f.conn, f.relay.Tables(), uncertain)
	require.NoError(f.t, err)
	var all []string
	for _, s := range sends {
		require.NotEmpty(f.t, s.EventID)
		all = append(all, s.Recipient+" "+string(s.State)+" "+s.Table+" "+s.ID)
	}
	return strings.Join(all, ", ")
}

func TestUncertainSendsAreListedAndExplained(t *testing.T) {
	t.Parallel()
	f, id, event := doubtfulMail(t)
	of := " pgrelay.outbox_events " + id
	require.Equal(t, "lost@x uncertain"+of, f.listed(true))
	require.ElementsMatch(t, []string{"ann@x sent" + of, "bob@x sent" + of, "lost@x uncertain" + of}, strings.Split(f.listed(false), ", "))
	f.explain(id).says(t, StateUncertain, "at lost@x is unknown", "pgrelay sends resolve --event "+event+" --sent", "it was sent to ann@x, bob@x")

	f.exec(`UPDATE pgrelay.notification_sends SET sent_at = now()`)
	require.Equal(t, " uncertain"+of, f.listed(true), "the row is uncertain although all claims have their sent_at since")
	f.exec(`DELETE FROM pgrelay.outbox_events`)
	f.exec(`UPDATE pgrelay.notification_sends SET sent_at = NULL WHERE recipient = 'ann@x'`)
	require.Contains(t, f.listed(true), "ann@x uncertain", "of a row that is gone")
}

func TestSendInProgressIsNotUncertain(t *testing.T) {
	t.Parallel()
	f, id := heldMail(t)
	require.Empty(t, f.listed(true))
	require.Equal(t, "ann@x pending pgrelay.outbox_events "+id, f.listed(false))
	event := f.one(`SELECT event_id::text FROM pgrelay.outbox_events`)
	for _, sent := range []bool{true, false} {
		_, err := f.resolve(Decision{EventID: event, Sent: sent})
		var flying *InFlightError
		require.ErrorAs(t, err, &flying)
	}
	close(f.pubs["mail"].hold)
	f.settled(0)
	require.Equal(t, "ann@x sent", f.sends(id))
}

func TestDecisionThatItArrivedPublishesTheRow(t *testing.T) {
	t.Parallel()
	f, id, event := doubtfulMail(t)
	var missing *NotFoundError
	_, err := f.resolve(Decision{EventID: event, Recipient: "ann@x", Sent: true})
	require.ErrorAs(t, err, &missing, "hers is sent")
	_, err = f.resolve(Decision{EventID: "nothing"})
	require.ErrorAs(t, err, &missing)

	done, err := f.resolve(Decision{EventID: event, Recipient: "lost@x", Sent: true})
	require.NoError(t, err)
	require.Equal(t, Resolved{Sends: 1, Published: 1}, done)
	require.Equal(t, "PUBLISHED", f.fate(id))
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
	require.Empty(t, f.listed(true))
	f.offer(id)
	f.settled(0)
	require.Len(t, f.pubs["mail"].messages(), 2, "nothing is sent again")
}

func TestDecisionThatItDidNotArriveSendsItToThatRecipientAlone(t *testing.T) {
	t.Parallel()
	f, id, event := doubtfulMail(t)
	f.pubs["mail"].script(nil)
	done, err := f.resolve(Decision{EventID: event})
	require.NoError(t, err)
	require.Equal(t, Resolved{Sends: 1, Again: 1}, done)
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Equal(t, "ann@x sent, bob@x sent, lost@x sent", f.sends(id))
	require.Equal(t, map[string]int{event + " ann@x": 1, event + " bob@x": 1, event + " lost@x": 1}, f.sent("mail"))
}

func TestEachOfTwoDoubtsIsDecidedByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	f.pubs["mail"].script(func(*Message) Result { return result(OutcomeUnknown) })
	f.start()
	id := f.one(insertMail, `["ann@x", "bob@x"]`, 1)
	f.ends(id)
	f.pubs["mail"].script(nil)
	event := f.one(`SELECT event_id::text FROM pgrelay.outbox_events`)
	done, err := f.resolve(Decision{EventID: event, Recipient: "ann@x", Sent: true})
	require.NoError(t, err)
	require.Equal(t, Resolved{Sends: 1, Left: 1}, done)
	require.Contains(t, f.fate(id), "UNCERTAIN")
	done, err = f.resolve(Decision{EventID: event, Recipient: "bob@x"})
	require.NoError(t, err)
	require.Equal(t, Resolved{Sends: 1, Again: 1}, done)
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Equal(t, map[string]int{event + " bob@x": 1}, f.sent("mail"))
}

func TestRepublishKeepsSendsThatWereMadeUnlessForced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	f.start()
	id := f.one(insertMail, `["ann@x", "bob@x"]`, 1)
	f.ends(id)
	f.explain(id).says(t, StatePublished, "--force", "ann@x, bob@x")
	table := f.relay.Tables()[0]
	for _, dry := range []bool{true, false} {
		change, err := table.Republish(t.Context(), f.conn, Selection{IDs: []string{id}}, dry)
		require.NoError(t, err)
		require.Equal(t, Change{Rows: 1, Kept: 2}, change)
	}
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Len(t, f.pubs["mail"].messages(), 2)

	f.exec(`UPDATE pgrelay.notification_sends SET sent_at = NULL WHERE recipient = 'bob@x'`)
	change, err := table.Republish(t.Context(), f.conn, Selection{IDs: []string{id}, Force: true}, false)
	require.NoError(t, err)
	require.Equal(t, Change{Rows: 1, Kept: 1}, change)
	require.Contains(t, f.ends(id), "UNCERTAIN")
	require.Len(t, f.pubs["mail"].messages(), 3, "what nobody knows of is not sent, forced or not")
}

func TestDeadRowThatIsRetriedGoesToWhoHasNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	f.pubs["mail"].script(byName(0))
	f.start()
	id := f.one(insertMail, `["ann@x", "gone@x"]`, 1)
	require.Contains(t, f.ends(id), "DEAD")
	f.pubs["mail"].script(nil)
	n, err := f.relay.Tables()[0].RetryDead(t.Context(), f.conn, DeadSelection{IDs: []string{id}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Len(t, f.pubs["mail"].messages(), 2)
}
