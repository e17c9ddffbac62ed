package configdoc

import (
	"fmt"
	"reflect"
	"strings"

	"pgrelay/internal/config"
)

const head = `# Configuration

pgrelay reads one YAML file: ` + "`pgrelay.yaml`, or what `-c` names" + `. A database, a destination and an
outbox with a route are all that it needs; [config.example.yaml](../config.example.yaml) begins
with such a file and shows every key in its place.

- What is misspelt, out of range or given twice is refused with its line, all of it at once, and
  pgrelay ends with 2. ` + "`pgrelay check`" + ` tells the same before a start.
- A duration has a unit (` + "`ms`, `s`, `m`, `h`" + `), a size too (` + "`KiB`, `MiB`, `GiB`, `TiB`" + `).
- ` + "`${NAME}`" + ` is replaced by the variable NAME, ` + "`${NAME:-default}`" + ` by the default where NAME is unset or
  empty; ` + "`$$`" + ` is a dollar. A variable may hold any characters: it is put in after the YAML was read.

This page is written by ` + "`go generate ./internal/configdoc`" + `: change the comments of
config.example.yaml, not this.
`

// smallest is a configuration that gives no key that has a default.
const smallest = `
database: {url: "postgres://localhost/db"}
destinations: {NAME: {type: stdout}}
outboxes: [{table: t, routes: [{kind: "*", to: NAME}]}]
`

// required ends the comment of a key that has to be there.
const required = "Required."

// Reference gives docs/configuration.md for the text of config.example.yaml.
func Reference(example string) (string, error) {
	defaults, err := config.Parse("smallest", []byte(smallest), func(string) (string, bool) { return "", false })
	if err != nil {
		return "", fmt.Errorf("parsing the smallest configuration: %w", err)
	}
	var doc strings.Builder
	doc.WriteString(head)
	for _, e := range entries(example) {
		value, err := field(reflect.ValueOf(*defaults), e.path)
		if err != nil {
			return "", err
		}
		section, key, nested := strings.Cut(e.path, ".")
		if !nested {
			fmt.Fprintf(&doc, "\n## %s\n\n", section)
			if e.comment != "" {
				fmt.Fprintf(&doc, "%s\n\n", wrap(e.comment))
			}
			doc.WriteString("| key | type | default | what it does |\n|---|---|---|---|\n")
			continue
		}
		if strings.HasSuffix(key, "NAME") {
			continue
		}
		fmt.Fprintf(&doc, "| `%s` | %s | %s | %s |\n", strings.TrimPrefix(key, "NAME."), typeName(value.Type()), defaultText(e, value), meaning(e, value))
	}
	return doc.String(), nil
}

// field finds what a path leads to. Of a list it takes the first, of a mapping NAME.
func field(v reflect.Value, path string) (reflect.Value, error) {
	for name := range strings.SplitSeq(path, ".") {
		for v.Kind() == reflect.Slice {
			if v.Len() == 0 {
				v = reflect.Zero(v.Type().Elem())
				break
			}
			v = v.Index(0)
		}
		if v.Kind() == reflect.Map {
			if v.IsNil() {
				return reflect.Zero(v.Type().Elem()), nil
			}
			v = v.MapIndex(reflect.ValueOf(name))
			continue
		}
		var next reflect.Value
		for f := range v.Type().Fields() {
			if f.Tag.Get("yaml") == name {
				next = v.FieldByIndex(f.Index)
			}
		}
		if !next.IsValid() {
			return v, fmt.Errorf("config.example.yaml has a key %s that package config has not", path)
		}
		v = next
	}
	return v, nil
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[config.Duration]():
		return "duration"
	case t == reflect.TypeFor[config.Size]():
		return "size"
	case t == reflect.TypeFor[config.RowKind]():
		return "text or mapping"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "integer"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return "mapping"
	}
	return "text"
}

func defaultText(e entry, v reflect.Value) string {
	switch {
	case strings.HasSuffix(e.comment, required):
		return "required"
	case strings.Contains(e.path, ".columns."):
		return "the same name"
	case v.Kind() == reflect.Struct || v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		return ""
	case (v.Kind() == reflect.String || v.Kind() == reflect.Int) && v.IsZero():
		return "none"
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// meaning is the comment, and the example's value where that is not simply the default.
func meaning(e entry, v reflect.Value) string {
	text := strings.TrimSpace(strings.TrimSuffix(e.comment, required))
	if v.Kind() == reflect.String && v.IsZero() || strings.HasSuffix(e.comment, required) || v.Kind() == reflect.Slice {
		if example := strings.Trim(e.value, `"'`); example != "" {
			text = strings.TrimSpace(text + " E.g. `" + example + "`.")
		}
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// wrap breaks a paragraph into lines as the other documents have them.
func wrap(text string) string {
	const width = 96
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}
