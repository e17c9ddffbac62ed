package replication

import "time"

const (
	// A position that moved is reported within a second; one that stands every ten,
	// six times within the server's default wal_sender_timeout of a minute.
	reportMoved  = time.Second
	reportIdle   = 10 * time.Second
	askAfter     = 10 * time.Second // of silence
	giveUpAfter  = 30 * time.Second // of silence: the connection is half open
	writeTimeout = 5 * time.Second
	finishWithin = 2 * time.Second
)

// pace decides when to report to the server and when to stop believing in it.
type pace struct {
	heard time.Time // the last byte received
	sent  time.Time // the last report
	asked time.Time // the last report that asked for an answer
}

type step uint8

const (
	stepWait step = iota
	stepReport
	stepAsk // report and ask for an answer
	stepGiveUp
)

// next says what to do now, and when to look again if nothing arrives before.
func (p *pace) next(now time.Time, moved bool) (step, time.Time) {
	report := p.sent.Add(reportIdle)
	if moved {
		report = p.sent.Add(reportMoved)
	}
	ask := p.heard.Add(askAfter)
	if !p.asked.Before(p.heard) {
		ask = p.asked.Add(askAfter)
	}
	giveUp := p.heard.Add(giveUpAfter)
	switch {
	case !now.Before(giveUp):
		return stepGiveUp, now
	case !now.Before(ask):
		return stepAsk, now
	case !now.Before(report):
		return stepReport, now
	}
	return stepWait, earliest(report, ask, giveUp)
}

func (p *pace) reported(now time.Time, asked bool) {
	p.sent = now
	if asked {
		p.asked = now
	}
}

func earliest(first time.Time, rest ...time.Time) time.Time {
	for _, t := range rest {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
