package relay

// taken explains a row that somebody else has, an old worker say.
func (x *explaining) taken() {
	if x.Since == nil {
		x.say(StateTaken, "Its %s is %s, which no relay has set: somebody else is processing it. Nobody has said since when, so it is not taken back; "+
			"if that worker is gone, set it to %s.", x.table.names.status, *x.Status, x.table.cfg.Status.Pending)
		return
	}
	x.out.Since = x.Since
	until := x.Since.Add(x.ClaimTimeout)
	x.out.Until = &until
	x.say(StateTaken, "Its %s is %s%s, which no relay has set: somebody else is processing it. It is taken back by the first sweep, one each %s, after %s.",
		x.table.names.status, *x.Status, x.at(x.Since), x.SweepInterval, x.when(until))
}

func (x *explaining) foreign() {
	value := "NULL"
	if x.Status != nil {
		value = *x.Status
	}
	s := x.table.cfg.Status
	x.say(StateForeign, "Its %s is %s, which is neither of %s, %s, %s and %s: the relay leaves it alone. To send it, set it to %s.",
		x.table.names.status, value, s.Pending, s.Processing, s.Published, s.Dead, s.Pending)
}
