package poller

// mark is a table's low-water mark: no pass looks at or below it. It is an optimisation, with a regular full look behind it,
// for tables whose dead index entries a held xmin keeps: a pass from the beginning would walk them again and again.
//
// It rises to the highest id of a look only when a later look from the old mark has begun after all writers running at the
// first had ended: until then a writer of that time may still commit a lower id, and a cursor over ids
// skips rows that commit late. Rows of a destination that a look left out hold it back no more than those that it found: the relay asks for
// a look at them from the beginning when the destination takes rows again.
type mark struct {
	at        string // rows above it are looked at; empty: all
	candidate string // the highest id of the look that is to be confirmed
	horizon   uint64 // writers at or above this were not running then; all below have to have ended
}

// looked takes the result of a look that began at the mark.
func (m *mark) looked(r lookResult) {
	if m.candidate != "" && r.xmin >= m.horizon {
		m.at, m.candidate = m.candidate, ""
	}
	if m.candidate == "" && r.highest != "" {
		m.candidate, m.horizon = r.highest, r.xmax
	}
}
