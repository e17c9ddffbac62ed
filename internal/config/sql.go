package config

import (
	"regexp"
	"strings"
)

// sqlToken is a word in lower case, or one other character, outside of quotes and comments.
type sqlToken struct {
	text string
	at   int // where it begins
}

var (
	sqlWord   = regexp.MustCompile(`^[\pL_][\pL\pN_$]*`)
	sqlDollar = regexp.MustCompile(`^\$(?:[\pL_][\pL\pN_]*)?\$`)
	// A string with backslash escapes has its E close before the quote.
	sqlQuoted = []*regexp.Regexp{
		regexp.MustCompile(`^[eE]'(?s:[^'\\]|''|\\.)*'`),
		regexp.MustCompile(`^'(?:[^']|'')*'`),
		regexp.MustCompile(`^"(?:[^"]|"")*"`),
		regexp.MustCompile(`^--[^\n]*(?:\n|$)`),
		regexp.MustCompile(`^\pN[\pL\pN_.]*`),
	}
)

// sqlTokens reads a piece of SQL as far as is needed to see where it ends: quotes and comments are passed over. closed is
// false where one of them, which may hold anything, has no end.
func sqlTokens(sql string) (tokens []sqlToken, closed bool) {
	for at := 0; at < len(sql); {
		rest := sql[at:]
		if n, ok := sqlPassed(rest); n > 0 || !ok {
			if !ok {
				return tokens, false
			}
			at += n
			continue
		}
		text := sqlWord.FindString(rest)
		if text == "" {
			text = rest[:1]
		}
		if strings.ContainsAny(text, `'"`) {
			return tokens, false
		}
		if strings.TrimSpace(text) != "" {
			tokens = append(tokens, sqlToken{strings.ToLower(text), at})
		}
		at += len(text)
	}
	return tokens, true
}

// sqlPassed is the length of what begins here and is of no interest; ok is false where it doesn't end.
func sqlPassed(sql string) (n int, ok bool) {
	for _, quoted := range sqlQuoted {
		if n := len(quoted.FindString(sql)); n > 0 {
			return n, true
		}
	}
	if tag := sqlDollar.FindString(sql); tag != "" {
		end := strings.Index(sql[len(tag):], tag)
		return 2*len(tag) + end, end >= 0
	}
	if !strings.HasPrefix(sql, "/*") {
		return 0, true
	}
	for depth, at := 1, 2; at < len(sql); at++ { // comments nest
		switch {
		case strings.HasPrefix(sql[at:], "/*"):
			depth, at = depth+1, at+1
		case strings.HasPrefix(sql[at:], "*/"):
			if depth, at = depth-1, at+1; depth == 0 {
				return at + 1, true
			}
		}
	}
	return 0, false
}

// sqlProblem says why a text can't be a piece of a statement, or nothing. What it means is the server's to say.
func sqlProblem(sql string) string {
	tokens, closed := sqlTokens(sql)
	if !closed {
		return "has a quote or comment without an end"
	}
	if len(tokens) == 0 && strings.TrimSpace(sql) == "" {
		return "is empty; leave it out"
	}
	var open []string
	for _, t := range tokens {
		switch t.text {
		case ";":
			return "has a semicolon; it is a piece of a statement, not a statement"
		case "(", "[":
			open = append(open, map[string]string{"(": ")", "[": "]"}[t.text])
		case ")", "]":
			if len(open) == 0 || open[len(open)-1] != t.text {
				return "has a " + t.text + " that nothing opens"
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return "lacks a " + open[len(open)-1]
	}
	return ""
}

// SplitAnd cuts a condition at its outermost ANDs. A condition that has an OR beside them stays whole.
func SplitAnd(condition string) []string {
	tokens, closed := sqlTokens(condition)
	if !closed {
		return []string{condition}
	}
	var parts []string
	depth, from, between := 0, 0, false
	for _, t := range tokens {
		switch t.text {
		case "(", "[", "case":
			depth++
		case ")", "]", "end":
			depth--
		}
		if depth > 0 {
			continue
		}
		switch {
		case t.text == "or":
			return []string{condition}
		case t.text == "between":
			between = true
		case t.text == "and" && between:
			between = false
		case t.text == "and":
			parts = append(parts, strings.TrimSpace(condition[from:t.at]))
			from = t.at + len(t.text)
		}
	}
	return append(parts, strings.TrimSpace(condition[from:]))
}
