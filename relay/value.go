package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// What a template sees. Text is a string and a boolean a bool, so that `if` and `eq`
// take them; the other values are the types below. Each prints as the text that
// PostgreSQL stored, and no number is ever parsed.
type (
	// templateRow is the row.
	templateRow map[string]any
	// nullText is NULL, JSON's null, or what index didn't find: it prints as nothing and is false.
	nullText string
	// nullFlag is the NULL of a boolean, which can still be compared with one.
	nullFlag bool
	// verbatim is text that is JSON as it stands: a number, or a json column without members.
	verbatim string
	// jsonObject is a JSON object with its stored text.
	jsonObject struct {
		members map[string]any
		text    string
	}
	// jsonArray is a JSON array with its stored text.
	jsonArray struct {
		items []any
		text  string
	}
	// emptyList is an object or array without members. It is a list because templates take
	// an empty list for false; its stored text lies behind its length.
	emptyList []string
)

func (nullFlag) String() string      { return "" }
func (o *jsonObject) String() string { return o.text }
func (a *jsonArray) String() string  { return a.text }
func (e emptyList) String() string   { return e[:1][0] }

// sqlValue is the value of a column of a type, given as format_type prints it.
func sqlValue(sqlType string, text *string) (any, error) {
	switch sqlType {
	case "boolean":
		if text == nil {
			return nullFlag(false), nil
		}
		return strings.HasPrefix(*text, "t"), nil // true as ::text prints it, t as the output function does
	case "json", "jsonb":
		if text != nil {
			return jsonValue(*text)
		}
	case "smallint", "integer", "bigint", "numeric", "real", "double precision":
		if text != nil && json.Valid([]byte(*text)) { // NaN and the infinities are not
			return verbatim(*text), nil
		}
	}
	if text == nil {
		return nullText(""), nil
	}
	return *text, nil
}

// jsonValue is the value of a json or jsonb column.
func jsonValue(text string) (any, error) {
	if !utf8.ValidString(text) { // the decoder would replace what is wrong without a word
		return nil, errNotUTF8
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	value, err := decodeValue(decoder, text)
	if err != nil {
		return nil, err
	}
	if err := decodeEnd(decoder); err != nil {
		return nil, err
	}
	switch value.(type) {
	case *jsonObject, *jsonArray, emptyList:
		return value, nil
	}
	return verbatim(text), nil // the column prints as stored: a string with its quotes
}

func decodeValue(decoder *json.Decoder, text string) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, errNotJSON
	}
	switch token := token.(type) {
	case json.Delim:
		return decodeMembers(decoder, text, token)
	case json.Number:
		return verbatim(token), nil
	case nil:
		return nullText(""), nil
	default:
		return token, nil
	}
}

// decodeMembers reads an object or array whose opening delimiter has just been read.
func decodeMembers(decoder *json.Decoder, text string, open json.Delim) (any, error) {
	start := decoder.InputOffset() - 1
	members := map[string]any{}
	var items []any
	for decoder.More() {
		if open == '[' {
			item, err := decodeValue(decoder, text)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
			continue
		}
		key, err := decoder.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return nil, errNotJSON
		}
		if members[name], err = decodeValue(decoder, text); err != nil {
			return nil, err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errNotJSON
	}
	text = text[start:decoder.InputOffset()]
	switch {
	case len(members) > 0:
		return &jsonObject{members, text}, nil
	case len(items) > 0:
		return &jsonArray{items, text}, nil
	default:
		return emptyList{text}[:0], nil
	}
}

// decodeEnd refuses what follows the value.
func decodeEnd(decoder *json.Decoder) error {
	if _, err := decoder.Token(); err != io.EOF {
		return errNotJSON
	}
	return nil
}

// valueError is why a template can't have what it asks for. It holds no value.
type valueError string

func (e valueError) Error() string { return string(e) }

func valueErrorf(format string, args ...any) error {
	return valueError(fmt.Sprintf(format, args...))
}

const (
	errNotJSON = valueError("it is not JSON") // the decoder's own errors quote the text
	errNotUTF8 = valueError("it is not UTF-8, which JSON has to be")
)

// walkValue walks from a value to a member. Templates call it wherever they say .a.b.
func walkValue(value any, path ...string) (any, error) {
	for _, name := range path {
		member, ok := any(nil), false
		switch of := value.(type) {
		case templateRow:
			member, ok = of[name]
		case *jsonObject:
			member, ok = of.members[name]
		case emptyList:
		case nullText:
			return nil, valueErrorf("%q is asked of NULL", name)
		default:
			return nil, valueErrorf("%q is asked of a value that is not a JSON object", name)
		}
		if !ok {
			return nil, valueErrorf("there is no %q (index gives NULL for what may be absent)", name)
		}
		value = member
	}
	return value, nil
}

// indexValue replaces the built-in one, which prints "<no value>" for what is absent: here
// that is NULL, at any depth.
func indexValue(value any, keys ...any) (any, error) {
	for _, key := range keys {
		member, ok := any(nil), false
		switch of := value.(type) {
		case templateRow:
			member, ok = of[fmt.Sprint(key)]
		case *jsonObject:
			member, ok = of.members[fmt.Sprint(key)]
		case *jsonArray:
			i, isInt := key.(int)
			if !isInt {
				return nil, valueErrorf("a JSON array is indexed by an integer")
			}
			if ok = i >= 0 && i < len(of.items); ok {
				member = of.items[i]
			}
		case emptyList, nullText:
		default:
			return nil, valueErrorf("index is asked of a value that is neither JSON object nor array")
		}
		if !ok {
			member = nullText("")
		}
		value = member
	}
	return value, nil
}

// rangeValue gives range what it can iterate over.
func rangeValue(value any) (any, error) {
	switch of := value.(type) {
	case *jsonObject:
		return of.members, nil
	case *jsonArray:
		return of.items, nil
	case emptyList, int:
		return of, nil
	case nullText:
		return []any(nil), nil
	}
	return nil, valueErrorf("range is asked of a value that is neither JSON object nor array")
}

// lenValue replaces the built-in len, which doesn't know our objects and arrays.
func lenValue(value any) (int, error) {
	switch of := value.(type) {
	case *jsonObject:
		return len(of.members), nil
	case *jsonArray:
		return len(of.items), nil
	case string:
		return len(of), nil
	case verbatim:
		return len(of), nil
	case emptyList, nullText:
		return 0, nil
	}
	return 0, valueErrorf("len is asked of a value that has none")
}

// toJSON prints a value as JSON: numbers, booleans and json as they stand, NULL as
// null, everything else as a string in which HTML's characters stay as they are.
func toJSON(value any) (string, error) {
	switch of := value.(type) {
	case nil, nullText, nullFlag:
		return "null", nil
	case verbatim:
		return string(of), nil
	case *jsonObject, *jsonArray, emptyList:
		return fmt.Sprint(of), nil
	case string:
		if !utf8.ValidString(of) {
			return "", errNotUTF8
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", valueErrorf("json is asked of a value that has no JSON form")
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
