package relay

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// why says of what a row died, or why it is uncertain.
func (x *explaining) why() string {
	reason := sentence(x.Reason, x.Detail)
	if x.Reason == reasonUncertain && x.Detail != "" {
		reason = x.Detail
	}
	return fmt.Sprintf("since %s, after %s: %s", x.when(*x.FailedDeadAt), plural(x.Attempts, "attempt"), reason)
}

// tries says how often a row was tried, and what came of it.
func (x *explaining) tries() string {
	var said []string
	if n := x.Attempts; n > 0 {
		said = append(said, fmt.Sprintf("%d of %d attempts failed", n, x.MaxAttempts))
	}
	if n := x.Unknowns; n > 0 {
		said = append(said, plural(n, "send")+" had an unknown outcome, which costs no attempt")
	}
	if x.Reason != "" {
		said = append(said, "the last with "+sentence(x.Reason, x.Detail))
	}
	return strings.Join(said, "; ") + "."
}

// holder says whose transaction has the row locked, empty if nobody's has.
func (x *explaining) holder() string {
	switch {
	case x.Prepared != nil:
		return "the prepared transaction " + stringLiteral(*x.Prepared)
	case x.HolderPID == nil:
		return ""
	}
	text := fmt.Sprintf("the transaction of backend %d", *x.HolderPID)
	if x.HolderName != nil && *x.HolderName != "" {
		text += fmt.Sprintf(" (%s)", *x.HolderName)
	}
	if x.HolderState != nil {
		text += ", " + *x.HolderState
	}
	if x.HolderSince != nil {
		text += ", begun" + x.at(x.HolderSince)
	}
	return text
}

// release says how to end the holder's lock.
func (x *explaining) release() string {
	if x.Prepared != nil {
		return "End it with COMMIT PREPARED or ROLLBACK PREPARED."
	}
	return fmt.Sprintf("If it is forgotten, end it with: SELECT pg_terminate_backend(%d)", *x.HolderPID)
}

// at is when something was, with the word before it; nothing if that isn't known.
func (x *explaining) at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " at " + x.when(*t)
}

// when is a time in the reader's zone and how far it is away by the database's clock.
func (x *explaining) when(t time.Time) string {
	return fmt.Sprintf("%s (%s)", t.Local().Format(time.DateTime), humanize.RelTime(t, x.Now, "ago", "from now"))
}

// command is what to type to do something to the row.
func (x *explaining) command(name string) string {
	return fmt.Sprintf("pgrelay %s --table %s --id %s", name, shellWord(x.out.Table), shellWord(x.out.ID))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.:@/+-]+$`)

// shellWord quotes a word for a shell where it needs it.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sentence is a reason with its detail.
func sentence(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + ": " + strings.TrimSuffix(detail, ".")
}

// oneLine is SQL as the configuration has it, with its white space made single.
func oneLine(sql string) string { return strings.Join(strings.Fields(sql), " ") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}
