package configdoc

import (
	"regexp"
	"strings"
)

// entry is a key of the example: its path, the comment above it and what it is set to there.
type entry struct {
	path, comment, value string
}

var setting = regexp.MustCompile(`^#( *)(- )?("[^"]*"|[a-z_]+):(?: (.*))?$`)

// entries reads the part of the example that lists every key, in its order. A key that
// stands there twice, in a second element of a list, counts once.
func entries(example string) []entry {
	_, text, _ := strings.Cut(example, "# Every key.")
	var all []entry
	var above []string
	var open []level
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := setting.FindStringSubmatch(line)
		switch {
		case line == "":
			above = nil
		case m == nil || m[1] == " ":
			above = append(above, strings.TrimSpace(strings.TrimPrefix(line, "#")))
		default:
			indent := len(m[1]) + len(m[2])
			for len(open) > 0 && open[len(open)-1].indent >= indent {
				open = open[:len(open)-1]
			}
			open = append(open, level{indent, m[3]})
			path := join(open)
			if !seen[path] {
				seen[path] = true
				all = append(all, entry{path: path, comment: strings.Join(above, " "), value: m[4]})
			}
			above = nil
		}
	}
	return all
}

// level is a mapping's key that the lines below are in.
type level struct {
	indent int
	name   string
}

// join makes a path in which each destination and each attribute is NAME.
func join(open []level) string {
	var names []string
	for i, l := range open {
		if i > 0 && (open[i-1].name == "destinations" || open[i-1].name == "attributes") {
			l.name = "NAME"
		}
		names = append(names, l.name)
	}
	return strings.Join(names, ".")
}
