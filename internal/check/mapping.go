package check

import (
	"fmt"
	"strings"

	"pgrelay/relay"
)

// judgeStatuses names the statuses that no key of `status` names: such rows are left alone, by intent or by a slip.
func judgeStatuses(name string, statuses []relay.StatusCount) []Line {
	var rows, strange int
	var texts []string
	for _, s := range statuses {
		rows += s.Rows
		if !s.Known {
			strange += s.Rows
			texts = append(texts, fmt.Sprintf("%s (%d)", s.Status, s.Rows))
		}
	}
	if len(texts) > statusesNamed {
		texts = append(texts[:statusesNamed], "…")
	}
	is := fmt.Sprintf("%d of its %d newest rows have a status that the relay leaves alone: %s", strange, rows, strings.Join(texts, ", "))
	switch strange {
	case 0:
		return nil
	case rows:
		return []Line{warning(name, "correct the values of `status` in the configuration if such rows are to be sent", "%s", is)}
	default:
		return []Line{ok(name, "%s", is)}
	}
}

const statusesNamed = 5

func judgeObjection(name string, o relay.Objection) Line {
	return failure(name, "map the column that it asks for, or change the constraint: a row without its mark stays in flight, and goes again after a restart",
		"its constraint %q refuses %s for %d of the %d newest pending rows", o.Constraint, o.What, o.Rows, o.Of)
}
