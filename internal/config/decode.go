package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills structs from YAML nodes by their yaml tags. It goes on after a
// problem, and leaves the default where a value is wrong.
type decoder struct {
	*source
	env func(string) (string, bool)
}

// value decodes n, which stands under key, into v.
func (d *decoder) value(key string, n *yaml.Node, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		d.report(key, "has a tag (!…); write the value without it")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		d.report(key, "has no value; leave the key out for the default")
	case v.Type() == reflect.TypeFor[RowKind]() && n.Kind == yaml.ScalarNode:
		d.scalar(key, n, v.FieldByName("Constant"))
	case v.Kind() == reflect.Struct:
		if v.IsZero() {
			setDefaults(v)
		}
		d.object(key, n, v)
	case v.Kind() == reflect.Map:
		d.named(key, n, v)
	case v.Type() == reflect.TypeFor[[]string]():
		d.names(key, n, v)
	case v.Kind() == reflect.Slice:
		d.list(key, n, v)
	case n.Kind != yaml.ScalarNode && v.Kind() == reflect.String:
		d.report(key, "must be text, not a %s; text with braces or brackets stands in quotes", kindOf(n))
	case n.Kind != yaml.ScalarNode:
		d.report(key, "must be a single value, not a %s", kindOf(n))
	default:
		d.scalar(key, n, v)
	}
}

// object decodes a mapping whose keys are the fields of a struct.
func (d *decoder) object(key string, n *yaml.Node, v reflect.Value) {
	fields := map[string]int{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "-" {
			fields[name] = i
		}
	}
	known := slices.Sorted(maps.Keys(fields))
	var meant []string
	for name, value := range d.pairs(key, n) {
		if field, ok := fields[name]; ok {
			d.value(join(key, name), value, v.Field(field))
			continue
		}
		d.report(join(key, name), "unknown key%s", didYouMean(name, known))
		if near := nearest(name, known); near != "" {
			meant = append(meant, join(key, near))
		}
	}
	for _, near := range meant {
		if !d.given(near) {
			d.told[near] = true // not missing as well
		}
	}
}

// named decodes a mapping whose keys are names that the user gives.
func (d *decoder) named(key string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	for name, node := range d.pairs(key, n) {
		value := reflect.New(v.Type().Elem()).Elem()
		setDefaults(value)
		d.value(join(key, name), node, value)
		v.SetMapIndex(reflect.ValueOf(name), value)
	}
}

// pairs yields a mapping's keys and values, and notes where the keys stand.
func (d *decoder) pairs(key string, n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			d.report(key, "must be a mapping (key: value), not a %s", kindOf(n))
			return
		}
		seen := map[string]int{}
		for i := 0; i < len(n.Content); i += 2 {
			k, value := n.Content[i], n.Content[i+1]
			switch {
			case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" && k.ShortTag() != "!!merge":
				d.add(k.Line, key, "has a key that is not text; put it in quotes")
			case k.ShortTag() == "!!merge":
				d.add(k.Line, key, "merges with <<; write the keys out (an alias for a whole value, *name, is taken)")
			case seen[k.Value] > 0:
				d.add(k.Line, join(key, k.Value), fmt.Sprintf("is given twice, first on line %d", seen[k.Value]))
			default:
				seen[k.Value] = k.Line
				d.lines[join(key, k.Value)] = k.Line
				if !yield(k.Value, value) {
					return
				}
			}
		}
	}
}

// list decodes a sequence of structs.
func (d *decoder) list(key string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.report(key, "must be a list (each entry begins with a dash), not a %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, node := range n.Content {
		item, at := v.Index(i), fmt.Sprintf("%s[%d]", key, i)
		d.lines[at] = node.Line
		setDefaults(item)
		if line := item.FieldByName("Line"); line.IsValid() {
			line.SetInt(int64(node.Line))
		}
		d.value(at, node, item)
	}
}

// names decodes a list of names, which may also be written as one text with commas.
func (d *decoder) names(key string, n *yaml.Node, v reflect.Value) {
	var names []string
	switch n.Kind {
	case yaml.SequenceNode:
		names = make([]string, len(n.Content))
		for i, node := range n.Content {
			at := fmt.Sprintf("%s[%d]", key, i)
			d.lines[at] = node.Line
			d.value(at, node, reflect.ValueOf(&names[i]).Elem())
		}
	case yaml.ScalarNode:
		var text string
		d.value(key, n, reflect.ValueOf(&text).Elem())
		if d.told[key] {
			return
		}
		for name := range strings.SplitSeq(text, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	default:
		d.report(key, "must be names with commas between them, or a list, not a %s", kindOf(n))
	}
	v.Set(reflect.ValueOf(names))
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	default:
		return "single value"
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join makes a key's full name; a part that could be mistaken stands in quotes.
func join(key, name string) string {
	if !plainName.MatchString(name) {
		name = fmt.Sprintf("%q", name)
	}
	if key == "" {
		return name
	}
	return key + "." + name
}
