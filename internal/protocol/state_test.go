package protocol

// The bounds of the model. Every number in a state is small, so that a state is a comparable value and its own hash key.
const (
	rowCount      = 2
	instanceCount = 2
	claimCount    = 4 // rows that pgrelay.claims can hold at once
	slotCount     = 3 // deliveries that an instance can have in memory
	strayCount    = 2 // calls on the wire that nobody waits for any more
	maxAttempts   = 2
)

// life is what became of the transaction that inserted a row.
type life uint8

const (
	absent     life = iota
	open            // inserted, not committed
	flushed         // the commit is in the WAL, so the stream has it, but no snapshot sees it yet
	committed       // visible to all
	rolledBack      // never was
)

type mark uint8

const (
	pending mark = iota
	published
	dead
)

// failure is the state of a row in pgrelay.failures.
type failure uint8

const (
	noFailure failure = iota
	waiting           // next_attempt_at lies ahead
	due               // next_attempt_at has passed
)

// outboxRow is one row of the owner's table with its failures row.
type outboxRow struct {
	life     life
	version  uint8 // xmin: another one after each write of the row
	mark     mark
	failure  failure
	attempts uint8
}

// claimRow is one row of pgrelay.claims; its index is its id.
type claimRow struct {
	by    uint8 // instance + 1; zero is no such row
	epoch uint8 // under which it was made
	ids   set
}

// database is what a crash of the server can take back to an earlier moment.
type database struct {
	rows   [rowCount]outboxRow
	claims [claimCount]claimRow
	leader uint8 // instance + 1, as the leader row says
	epoch  uint8
	reused set // claim ids that the sequence will give out again after a crash took back their rows
}

// phase is where a delivery is between claim and stamp.
type phase uint8

const (
	inLine    phase = iota // waits to be sent
	onWire                 // sent, not accepted yet
	accepted               // the destination has it, the reply is under way
	delivered              // the outcomes that wait for a stamp begin here
	refused
	rejected
	unknown
	back
	doubtDelivered // the stamp's reply was lost or the stamp refused: to be read back
	doubtOther
)

func (p phase) outcome() bool { return p >= delivered && p <= back }
func (p phase) doubt() bool   { return p >= doubtDelivered }

// stamp is how far the stamp statement is with a delivery, and its answer.
type stamp uint8

const (
	unstamped stamp = iota
	underWay
	halfDone // only without stampIsOneStatement: out of its claim, not marked yet
	settled
	changedRow // the version was another one: taken out of the claim, no outcome
	lockedRow  // left where it was
	fenced     // the claim does not hold it
)

func (s stamp) ran() bool  { return s > halfDone }
func (s stamp) took() bool { return s == settled || s == changedRow }

// delivery is one claimed row in the memory of an instance, or in a stamp statement that outlived it.
type delivery struct {
	row     uint8 // row + 1; zero is an empty slot
	claim   uint8
	epoch   uint8 // of its claim
	version uint8
	phase   phase
	stamp   stamp
	foreign bool // an epoch since the claim was not this instance's own
	// What follows is bookkeeping of the model, nothing that an instance knows.
	excused  bool // has already given its row the right to one repeat
	deposed  bool // another instance has released its claim
	lostHold bool // a crash of the server took its claim back
}

type deliveries [slotCount]delivery

// claimStage is how far the claim statement is.
type claimStage uint8

const (
	idle claimStage = iota
	sent
	answered // committed, the reply is under way
)

type claimStatement struct {
	stage               claimStage
	want                set
	got, behind, again  set // the answers
	id                  uint8
	versions            [rowCount]uint8
	excused             set  // taken rows that their owner changed before the reply arrived
	keySettledMeanwhile bool // a stamp's reply arrived since the statement was sent
	deposed             bool // another instance has released it since it ran
}

type lead uint8

const (
	standby lead = iota
	taken        // has the lock, has not released the claims of others yet
	leading
)

// instance is one process: all of it is memory.
type instance struct {
	alive  bool
	lead   lead // what it believes
	fresh  bool // its last good ping began less than 3 s ago
	epoch  uint8
	queue  set  // ids to claim
	behind set  // ids that wait for their key to settle
	look   bool // a full look is due
	claim  claimStatement
	items  deliveries
	low    lowWater
}

// lowWater is the poller's low-water mark: rows below it are not looked at by a pass.
type lowWater struct {
	mark, next uint8 // next becomes mark when writers have ended
	writers    set
}

// stray is a call on the wire that nobody waits for any more.
type stray struct{ row, version uint8 }

// record is what the model remembers of a row to judge what the relay does with it.
type record struct {
	credit   uint8 // how often it may still be accepted: once, and once for each of G2's reasons
	accepted uint8 // highest version accepted, plus one
	owed     uint8 // the version that its owner wrote last
	touched  bool  // its owner changed it
	setBack  bool  // somebody set it back to pending
}

type state struct {
	db, disk database // disk is what a crash of the server goes back to
	locked   set      // rows that an owner's open transaction has locked
	slot     set      // rows that the stream has yet to bring
	slotBy   uint8    // instance + 1 whose stream holds the slot
	lock     uint8    // instance + 1 whose session holds the advisory lock
	inst     [instanceCount]instance
	late     [instanceCount]deliveries // stamp statements on their way whose sender is gone
	strays   [strayCount]stray
	record   [rowCount]record
	byHand   bool // a row was set back by hand: it may wait for the regular full look
	left     budget
	broken   violation
}

// set is a set of rows.
type set uint8

func one(r int) set          { return 1 << r }
func (s set) has(r int) bool { return s&one(r) != 0 }

func (d *deliveries) add(x delivery) {
	for k := range d {
		if d[k].row == 0 {
			d[k] = x
			d.sort()
			return
		}
	}
	panic("slotCount is too small")
}

// sort gives states that differ only in the order of their deliveries one form.
func (d *deliveries) sort() {
	less := func(a, b delivery) bool {
		if (a.row == 0) != (b.row == 0) {
			return b.row == 0
		}
		if a.row != b.row {
			return a.row < b.row
		}
		return a.claim < b.claim
	}
	for i := 1; i < len(d); i++ {
		for j := i; j > 0 && less(d[j], d[j-1]); j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
}

func (d *deliveries) rows() set {
	var s set
	for k := range d {
		if d[k].row != 0 {
			s |= one(int(d[k].row) - 1)
		}
	}
	return s
}

func (d *deliveries) any(is func(*delivery) bool) bool {
	for k := range d {
		if d[k].row != 0 && is(&d[k]) {
			return true
		}
	}
	return false
}

func (d *deliveries) each(do func(*delivery)) {
	for k := range d {
		if d[k].row != 0 {
			do(&d[k])
		}
	}
}
