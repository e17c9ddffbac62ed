package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	variable = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)
	// bare is what a shell would take for a variable and we don't.
	bare = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)$`)
)

// expand replaces ${NAME} and ${NAME:-default} once: what a variable or a default
// brings is not looked at again. $$ is a dollar, and so is one before anything else,
// because templates use it. used says whether a variable was named at all.
func expand(text string, env func(string) (string, bool)) (expanded string, used bool, err error) {
	if m := bare.FindStringSubmatch(text); m != nil {
		return "", false, fmt.Errorf("is not expanded as it stands; write ${%s} for the variable or $$%s for the text", m[1], m[1])
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), used, nil
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			m := variable.FindStringSubmatch(after)
			if m == nil || strings.Contains(m[3], "${") {
				return "", true, errors.New("has a ${ that is neither ${NAME} nor ${NAME:-default}; $${ stands for the text")
			}
			value, err := lookUp(env, m[1], m[2] != "", m[3])
			if err != nil {
				return "", true, err
			}
			b.WriteString(value)
			text, used = after[len(m[0]):], true
		default:
			b.WriteByte('$')
			text = after
		}
	}
}

// lookUp takes the default for a variable that is empty, too, as shells do.
func lookUp(env func(string) (string, bool), name string, hasDefault bool, otherwise string) (string, error) {
	value, ok := env(name)
	switch {
	case hasDefault && value == "":
		return otherwise, nil
	case !ok:
		return "", fmt.Errorf("the variable %s is not set; ${%s:-…} gives it a default", name, name)
	}
	return value, nil
}
