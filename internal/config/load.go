package config

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads and checks a file. env looks a variable up, as os.LookupEnv does. The
// error is always Problems.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err // the path is in the problem already
		}
		return nil, Problems{{File: path, Text: "can't be read: " + err.Error()}}
	}
	return Parse(path, data, env)
}

// Parse is Load for a file that is in memory; name stands for it in problems.
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	src := newSource(name)
	root := document(src, data)
	if root == nil {
		return nil, src.err()
	}
	refuseTabs(src, data, root)
	c := Default()
	c.File = name
	d := &decoder{source: src, env: env}
	d.value("", root, reflect.ValueOf(c).Elem())
	setTypeDefaults(src, c)
	if !src.told[""] {
		v := &validator{source: src, c: c}
		v.validate()
	}
	if err := src.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// document is the file's one document, or nil with a problem reported.
func document(src *source, data []byte) *yaml.Node {
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := reader.Decode(&doc); {
	case errors.Is(err, io.EOF):
		src.add(1, "", "is empty; config.example.yaml shows what belongs in it")
		return nil
	case err != nil:
		reportSyntax(src, data, err)
		return nil
	}
	switch err := reader.Decode(&second); {
	case err == nil:
		src.add(second.Line, "", "a second document begins here; one file is one configuration")
	case !errors.Is(err, io.EOF):
		reportSyntax(src, data, err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		src.add(root.Line, "", "is empty; config.example.yaml shows what belongs in it")
		return nil
	}
	return root
}

var (
	yamlError   = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	tabIndented = regexp.MustCompile(`^[ -]*\t`)
)

// reportSyntax gives the parser's error a place; it has only text. A tab is the most
// common cause and named worst, and the line may be the one before it.
func reportSyntax(src *source, data []byte, err error) {
	line, text := 1, err.Error()
	if m := yamlError.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(cmp.Or(m[1], "1"))
		text = m[2]
		// The parser's own errors, unlike its scanner's, count lines from zero.
		if m[1] != "" && strings.HasPrefix(text, "did not find expected") {
			line = min(line+1, bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n"))+1)
		}
	}
	switch {
	case strings.HasPrefix(text, "unknown anchor"):
		src.add(line, "", "has an alias (*name) whose anchor (&name) is not there; text that begins with * stands in quotes")
		return
	case strings.Contains(text, "tab character"), strings.Contains(text, "cannot start any token"):
		lines := bytes.Split(data, []byte("\n"))
		for n := line; n <= len(lines); n++ {
			if tabIndented.Match(lines[n-1]) {
				src.add(n, "", tabText)
				return
			}
		}
	}
	src.add(line, "", "is not YAML: "+text)
}

const tabText = "is indented with a tab; YAML is indented with spaces"

// refuseTabs reports tabs before the first thing of a line. The parser lets some of
// them pass, e.g. in lists in brackets, where they only look like structure.
func refuseTabs(src *source, data []byte, root *yaml.Node) {
	lines := bytes.Split(data, []byte("\n"))
	seen := map[int]bool{}
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		if n.Line >= 1 && n.Line <= len(lines) && !seen[n.Line] {
			seen[n.Line] = true
			line := lines[n.Line-1]
			indent := line[:min(max(n.Column-1, 0), len(line))]
			if len(bytes.TrimLeft(indent, " \t")) == 0 && bytes.ContainsRune(indent, '\t') {
				src.add(n.Line, "", tabText)
			}
		}
		for _, child := range n.Content {
			visit(child)
		}
	}
	visit(root)
}
