package config

import "strings"

// MatchKind says whether a kind matches a pattern, in which * is any run of
// characters, none included. The empty kind, which a row has whose kind is NULL,
// matches only *.
func MatchKind(pattern, kind string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return kind != "" && pattern == kind
	}
	kind, ok := strings.CutPrefix(kind, first)
	if !ok {
		return false
	}
	// Leftmost is right for all runs but the last, which has to reach the end.
	for {
		var run string
		run, rest, wild = strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(kind, run)
		}
		if _, kind, ok = strings.Cut(kind, run); !ok {
			return false
		}
	}
}

// covers says whether every kind that matches other matches pattern, too. A * of the
// other can only be met by a * of the pattern, so other is matched as if it were a kind.
func covers(pattern, other string) bool { return MatchKind(pattern, other) }
