package protocol

import "fmt"

// rule is a part of the protocol that a test takes out to see the model fail.
type rule uint32

const (
	claimReadsTheTable      rule = 1 << iota // what is not committed is not taken, whatever the stream says
	claimKeepsNotYetVisible                  // decodable, not visible: asked for again, not dropped
	claimLeavesOutInFlight                   // decided before the statement's snapshot
	claimHoldsKey                            // nothing is taken behind an earlier unsettled row of its key
	lineWaitsForDelivery                     // a row is sent when the one before it is delivered
	freshBeforeSend                          // no call when the last good ping is over 3 s old
	stampIsFenced                            // what its claim doesn't hold any more is not stamped
	fenceNamesEpoch                          // the fence compares the claim's epoch, not its id alone
	stampChecksVersion                       // a row that changed in flight takes no outcome
	stampIsOneStatement                      // out of the claim and marked at the same moment
	inFlightUntilStamped                     // an id is in flight until its stamp has committed
	readBack                                 // after a lost reply, before the ids are forgotten
	readBackTakesClaim                       // so that the stamp in doubt can't run any more
	releaseFirst                             // a new leader claims after it has released
	releaseUnderLock                         // on the session that holds the lock
	releaseGoesByID                          // what is dropped from memory leaves a claim that is held for others
	takeoverIsDurable                        // epoch and release survive a crash of the server
	lookAfterReconnect                       // full look, of the lead and of the stream
	lowWaterWaitsForWriters                  // the mark moves when all who wrote at the look have ended
	backIsAskedAgain                         // what leaves the in-flight set pending is queued
	behindSeesSettling                       // a key that settled since the claim was sent is asked for at once
	behindIsAskedAgain                       // on a timer, for keys that somebody else settles
)

// budget bounds an exploration: how often each thing may still happen, and how many of them altogether.
type budget struct {
	total                                      uint8
	freeze, cut, crash, serverCrash            uint8 // of instances, leader sessions, processes, the server
	lostReply, lostStamp                       uint8
	refuse, reject                             uint8
	rollback, change, settle, rearm, lockedRow uint8
}

// scenario is one exploration.
type scenario struct {
	name    string
	keyed   bool // the rows share an ordering key
	given   bool // the rows are committed at the start
	rows    int
	standby bool // a second instance runs
	stream  bool
	// lowWater: the poller passes from its low-water mark. Without it and with a stream it looks only when something tells
	// it to, so that what would wait for the sweep counts as lost. Without both every look is a full one.
	lowWater bool
	left     budget
}

type model struct {
	scenario
	without rule
}

func (m *model) has(r rule) bool { return m.without&r == 0 }

// step names one transition for the trace.
type step struct {
	what string
	who  int8 // instance, or -1
	row  int8 // row, or -1
}

func (s step) String() string {
	text := s.what
	if s.who >= 0 {
		text = fmt.Sprintf("%c: %s", 'A'+s.who, text)
	}
	if s.row >= 0 {
		text += fmt.Sprintf(" [row %d]", s.row+1)
	}
	return text
}

// urgency orders the steps of a run without faults: the lowest number that is possible is done. Zero is a step that only
// the exploration takes: a fault, or what nobody is obliged to do.
type urgency uint8

const optional urgency = 0

// emit receives each state that can follow.
type emit func(step, urgency, state)

func (m *model) start() state {
	var s state
	for i := range s.inst {
		s.inst[i].alive = i == 0 || m.standby
	}
	s.db.leader, s.db.epoch, s.lock = 1, 1, 1
	if m.stream {
		s.slotBy = 1
	}
	a := &s.inst[0]
	a.lead, a.fresh, a.epoch = leading, true, 1
	for r := range s.record {
		s.record[r].credit = 1
		if m.given && r < m.rows {
			s.db.rows[r].life = committed
			s.slot |= one(r) * set(s.slotBy)
		}
	}
	s.left = m.left
	m.flush(&s)
	return s
}

// next calls out every state that can follow s.
func (m *model) next(s *state, out emit) {
	m.ownerSteps(s, out)
	m.serverSteps(s, out)
	m.wireSteps(s, out)
	for i := range s.inst {
		if !s.inst[i].alive {
			m.downSteps(s, i, out)
			continue
		}
		m.leadSteps(s, i, out)
		m.lookSteps(s, i, out)
		m.claimSteps(s, i, out)
		m.publishSteps(s, i, out)
		m.stampSteps(s, i, out)
	}
}

// spend takes one from a budget; it answers whether there was one.
func (s *state) spend(of func(*budget) *uint8) bool {
	n := of(&s.left)
	if *n == 0 || s.left.total == 0 {
		return false
	}
	*n--
	s.left.total--
	if s.left.total == 0 {
		s.left = budget{} // what can't be spent any more must not tell states apart
	}
	if s.left.serverCrash == 0 {
		s.disk = database{}
	}
	return true
}

// fault emits a step that takes from a budget.
func fault(s *state, of func(*budget) *uint8, st step, out emit, do func(*state)) {
	t := *s
	if t.spend(of) {
		do(&t)
		out(st, optional, t)
	}
}

// flush makes everything so far durable. Commits of owners do it, the relay's (synchronous_commit=off) don't.
func (m *model) flush(s *state) {
	if s.left.serverCrash > 0 {
		s.disk = s.db
	}
}
