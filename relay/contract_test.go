package relay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// contract is what every kind of table gets, step by step on one of a kind.
type contract struct {
	*fixture
	k     *outboxKind
	pub   *recorder
	table *Table
	sent  int // messages so far
}

func TestEveryKindOfTableGetsTheSameTreatment(t *testing.T) {
	t.Parallel()
	for _, k := range outboxKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, k.outbox, k.ddl...)
			c := &contract{fixture: f, k: &k, pub: f.pubs["queue"], table: f.relay.Tables()[0]}
			if k.ordered {
				c.pub = f.pubs["fifo"]
			}
			f.start()
			ids := c.deliversEachRowOnceAndInOrder()
			c.buriesWhatIsRefusedTooOftenAndSendsItWhenAsked()
			c.sendsAgainWhatChangedInFlight()
			c.takesUpWhatADeadProcessLeft()
			if k.deletes {
				c.forgetsWhatItDeleted(ids)
			} else {
				c.sendsAgainWhatIsRepublishedOrSetBack(ids)
			}
			require.Len(t, c.pub.messages(), c.sent)
			require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
			require.NoError(t, f.stop())
		})
	}
}

// goes waits for n more messages, and until nothing is left to do.
func (c *contract) goes(n int) {
	c.t.Helper()
	c.sent += n
	c.pub.wait(c.t, c.sent)
	c.waitPending(c.k, "0")
}

func (c *contract) deliversEachRowOnceAndInOrder() (ids []string) {
	c.t.Helper()
	var bodies []string
	for n := range 30 {
		body := fmt.Sprint("r", n)
		ids, bodies = append(ids, c.row(c.k, body, "1")), append(bodies, body)
	}
	c.offer(ids[15:]...)
	c.offer(ids...)
	c.pub.wait(c.t, 30)
	c.offer(ids...)
	c.goes(30)
	var got []string
	for _, body := range c.pub.bodies() {
		got = append(got, unquoted(body))
	}
	if c.k.ordered {
		require.Equal(c.t, bodies, got)
	} else {
		require.ElementsMatch(c.t, bodies, got)
	}
	return ids
}

func (c *contract) buriesWhatIsRefusedTooOftenAndSendsItWhenAsked() {
	c.t.Helper()
	c.pub.script(func(m *Message) Result {
		if unquoted(m.Body) == "bad" {
			return Result{Outcome: OutcomeRetry, Reason: "odd", Detail: "refused"}
		}
		return Result{Outcome: OutcomeDelivered}
	})
	bad := c.row(c.k, "bad", "1")
	c.offer(bad)
	pgtest.Eventually(c.t, longEnough, func() bool { return c.one(`SELECT count(*)::text FROM pgrelay.failures WHERE attempts > 0`) == "1" }, "the row is refused")
	require.Equal(c.t, "1", c.one(c.k.pending), "it waits for its retry")
	behind := c.row(c.k, "behind it", "1")
	c.offer(behind)
	c.offer(c.row(c.k, "proof that the destination works", "2"))
	c.sent += 2
	pgtest.Eventually(c.t, longEnough, func() error { // as the poller does when a retry is due
		c.offer(due(c.fixture, c.table.RetryLook())...)
		c.offer(bad, behind)
		if pending := c.one(c.k.pending); pending != "0" {
			return fmt.Errorf("%s rows are pending", pending)
		}
		return nil
	}, "the refused row dies")
	c.goes(0)
	letters, err := c.table.Dead(c.t.Context(), c.conn, DeadSelection{})
	require.NoError(c.t, err)
	require.Len(c.t, letters, 1)
	require.Equal(c.t, bad, letters[0].ID)
	require.Equal(c.t, 3, letters[0].Attempts)
	counts, err := c.table.Count(c.t.Context(), c.conn)
	require.NoError(c.t, err)
	require.Equal(c.t, Counts{Table: c.table.Name, Dead: 1}, withoutAge(counts))

	c.pub.script(nil)
	n, err := c.table.RetryDead(c.t.Context(), c.conn, DeadSelection{IDs: []string{bad}})
	require.NoError(c.t, err)
	require.Equal(c.t, 1, n)
	c.offer(due(c.fixture, c.table.RetryLook())...)
	c.goes(1)
}

// sendsAgainWhatChangedInFlight: what was sent may not be what the row says now, so it takes no outcome.
func (c *contract) sendsAgainWhatChangedInFlight() {
	c.t.Helper()
	i := slices.IndexFunc(c.table.Columns, func(col Column) bool {
		return col.Written && col.Name != c.table.names.id && !slices.Contains(c.table.Marks(), col.Name)
	})
	touch := quote(c.table.Columns[i].Name)
	for _, set := range []string{touch + " = " + touch, c.table.unmark()} { // changed, and set back by hand
		hold := make(chan struct{})
		c.pub.mu.Lock()
		c.pub.hold = hold
		c.pub.mu.Unlock()
		id := c.row(c.k, "changed", "1")
		c.offer(id)
		pgtest.Eventually(c.t, longEnough, func() bool {
			return c.one(`SELECT count(*)::text FROM pgrelay.claims`) == "1" && c.relay.inFlight() == 1
		}, "the row is on the wire")
		require.Equal(c.t, "1", c.one(`SELECT count(*)::text FROM `+c.table.relation()+` WHERE `+quote(c.table.names.id)+`::text = $1`, id))
		c.exec(`UPDATE `+c.table.relation()+` o SET `+set+` WHERE o.`+quote(c.table.names.id)+`::text = $1`, id)
		c.pub.mu.Lock()
		c.pub.hold = nil
		c.pub.mu.Unlock()
		close(hold)
		c.goes(2)
	}
}

// takesUpWhatADeadProcessLeft: another instance finds claims of one that is no more.
func (c *contract) takesUpWhatADeadProcessLeft() {
	c.t.Helper()
	require.NoError(c.t, c.stop())
	ids := []string{c.row(c.k, "left 1", "1"), c.row(c.k, "left 2", "1")}
	c.exec(`INSERT INTO pgrelay.claims (outbox, instance, epoch, ids) VALUES ($1, $2, 1, $3)`, c.table.Name, uuid.New(), ids)
	if set := c.table.claiming(); set != "" {
		c.exec(`UPDATE `+c.table.relation()+` o SET `+set+` WHERE o.`+quote(c.table.names.id)+`::text = ANY ($1)`, ids)
	}
	c.build(c.k.outbox)
	c.table = c.relay.Tables()[0]
	c.start()
	c.goes(2)
	if c.k.ordered {
		require.Equal(c.t, []string{"left 1", "left 2"}, []string{unquoted(c.pub.bodies()[c.sent-2]), unquoted(c.pub.bodies()[c.sent-1])})
	}
}

func (c *contract) forgetsWhatItDeleted(ids []string) {
	c.t.Helper()
	require.Equal(c.t, "0", c.one(`SELECT count(*)::text FROM `+c.table.relation()), "nothing is left")
	c.explain(ids[0]).says(c.t, StateNoRow, "on_published is delete")
	c.offer(ids...)
	c.offer(c.row(c.k, "after those that are gone", "1"))
	c.goes(1)
}

func (c *contract) sendsAgainWhatIsRepublishedOrSetBack(ids []string) {
	c.t.Helper()
	for _, dry := range []bool{true, false} {
		change, err := c.table.Republish(c.t.Context(), c.conn, Selection{IDs: ids[:2], Force: true}, dry)
		require.NoError(c.t, err)
		require.Equal(c.t, 2, change.Rows)
	}
	c.offer(due(c.fixture, c.table.RetryLook())...)
	c.goes(2)

	if c.table.Ledger != nil { // which keeps what was sent from being sent again
		c.exec(`DELETE FROM ` + c.table.Ledger.Name)
	}
	c.exec(expander(c.table).Replace(`UPDATE @outbox o SET @unmarked WHERE @o.id::text = $1`), ids[3])
	found := first(c.fixture, c.table.FirstLook(), c.relay.rooms())
	found = append(found, due(c.fixture, c.table.DeferredLook())...)
	require.Equal(c.t, []string{ids[3]}, found)
	c.offer(ids[3])
	c.goes(1)
}

// inFlight is how many rows are on the wire.
func (r *Relay) inFlight() (n int) {
	for _, d := range r.destinations {
		n += d.state().inFlight
	}
	return n
}
