package check

import "fmt"

// Level is how a thing that was looked at stands.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // the relay works, and a person should know
	Failure Level = "failure"
	Skipped Level = "skipped" // not looked at: not wanted, or something before it has failed
)

// Line is one finding.
type Line struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // what to run or to change; each warning and failure has one
}

// String is the finding and its cure in one line.
func (l Line) String() string { return fmt.Sprintf("%s: %s; %s", l.Name, l.Text, l.Fix) }

// Report is all findings, in the order in which causes come before what they cause.
type Report struct {
	Lines []Line `json:"lines"`
}

// Count says how many lines are of a level.
func (r Report) Count(level Level) int {
	n := 0
	for _, l := range r.Lines {
		if l.Level == level {
			n++
		}
	}
	return n
}

func ok(name, format string, args ...any) Line {
	return Line{Name: name, Level: OK, Text: fmt.Sprintf(format, args...)}
}

func skipped(name, text string) Line {
	return Line{Name: name, Level: Skipped, Text: text}
}

func warning(name, fix, format string, args ...any) Line {
	return Line{Name: name, Level: Warning, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func failure(name, fix, format string, args ...any) Line {
	return Line{Name: name, Level: Failure, Text: fmt.Sprintf(format, args...), Fix: fix}
}
