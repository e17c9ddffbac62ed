package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration file.
type Problem struct {
	File string
	Line int    // 0 if it is the whole file
	Key  string // as in destinations.bookings.queue; empty if it is no single key
	Text string // what is wrong and what to write instead; holds no value of the file
}

// String is the problem as compilers print theirs.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	return b.String() + ": " + p.Text
}

// Problems is everything that is wrong with a file, in the file's order.
type Problems []Problem

// Error implements error, one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// source is a file while it is read: where its keys stand and what is wrong with it.
type source struct {
	file     string
	lines    map[string]int  // by key: where it stands; only keys that the file has
	variable map[string]bool // by key: its value holds a variable's
	told     map[string]bool // keys about which nothing more need be said
	problems Problems
}

func newSource(file string) *source {
	return &source{file: file, lines: map[string]int{}, variable: map[string]bool{}, told: map[string]bool{}}
}

// given says whether the file has the key.
func (s *source) given(key string) bool { return s.lines[key] > 0 }

// report notes a problem of a key, unless one of it or of what it stands in is known
// already: what follows from the first (a mistyped key is missing, too) would only hide it.
func (s *source) report(key, format string, args ...any) {
	for in := key; in != ""; in = parent(in) {
		if s.told[in] {
			return
		}
	}
	s.told[key] = true
	s.add(s.line(key), key, fmt.Sprintf(format, args...))
}

func (s *source) add(line int, key, text string) {
	s.problems = append(s.problems, Problem{File: s.file, Line: line, Key: key, Text: text})
}

// line is where a key stands; for one that is missing, where it should have been.
func (s *source) line(key string) int {
	for key != "" {
		if line := s.lines[key]; line > 0 {
			return line
		}
		key = parent(key)
	}
	return 1
}

func parent(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// err is everything reported so far, or nil.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortFunc(s.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return s.problems
}
