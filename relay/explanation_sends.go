package relay

import "strings"

// doubts names the recipients of a settled row of whom nobody knows whether it arrived.
func (x *explaining) doubts() {
	if len(x.Unsent) > 0 {
		x.note("whether it arrived%s is unknown; decide by: %s --sent, or --retry", listed(" at ", x.Unsent), x.resolve())
	}
}

// resolve is what to type to decide about the row's sends.
func (x *explaining) resolve() string { return "pgrelay sends resolve --event " + shellWord(x.EventID) }

// listed names recipients after a word; nothing if there are none.
func listed(word string, recipients []string) string {
	if len(recipients) == 0 {
		return ""
	}
	return word + strings.Join(recipients, ", ")
}
