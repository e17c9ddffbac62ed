package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// scalar decodes a single value. A value with a variable in it is read as whatever
// type the key has; one without must be of that type as YAML sees it, too, so that
// nothing is guessed.
func (d *decoder) scalar(key string, n *yaml.Node, v reflect.Value) {
	text, used, err := expand(n.Value, d.env)
	if err != nil {
		d.report(key, "%s", err)
		return
	}
	d.variable[key] = used
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch {
	case v.Kind() == reflect.String:
		if !used && n.ShortTag() != "!!str" {
			err = errors.New("must be text; put it in quotes")
		}
		v.SetString(text)
	case v.Type() == reflect.TypeFor[Duration]():
		err = parseInto(v.SetInt, parseDuration, text)
	case v.Type() == reflect.TypeFor[Size]():
		err = parseInto(v.SetInt, parseSize, text)
	case quoted && !used:
		err = errors.New("must be a number, true or false, without quotes")
	case v.Kind() == reflect.Bool:
		err = parseInto(v.SetBool, parseBool, text)
	case v.Kind() == reflect.Float64:
		err = parseInto(v.SetFloat, parseFloat, text)
	default:
		err = parseInto(v.SetInt, parseInt, text)
	}
	if err != nil {
		d.report(key, "%s", err)
	}
}

// parseInto sets a value if its text is good, and else keeps the default.
func parseInto[T any](set func(T), parse func(string) (T, error), text string) error {
	value, err := parse(text)
	if err == nil {
		set(value)
	}
	return err
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

var (
	wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	number      = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	size        = regexp.MustCompile(`^(0|[1-9][0-9]*)(B|KiB|MiB|GiB|TiB)$`)
)

// parseInt takes plain decimal digits only: 010 is octal to some readers of YAML and
// ten to others. What doesn't fit becomes the largest number, which no range allows.
func parseInt(text string) (int64, error) {
	if !wholeNumber.MatchString(text) {
		return 0, errors.New("must be a whole number in plain digits")
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n, nil
}

func parseFloat(text string) (float64, error) {
	if !number.MatchString(text) {
		return 0, errors.New("must be a number in plain digits, such as 2 or 0.2")
	}
	f, _ := strconv.ParseFloat(text, 64)
	return f, nil
}

func parseDuration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return int64(d), nil
	case number.MatchString(text):
		return 0, errors.New("needs a unit (ms, s, m or h), such as 30s")
	default:
		return 0, errors.New("must be a duration with its unit (ms, s, m or h), such as 250ms, 30s or 168h")
	}
}

var sizeUnits = map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// parseSize takes no MB or GB: they are powers of ten to some and of two to PostgreSQL.
func parseSize(text string) (int64, error) {
	m := size.FindStringSubmatch(text)
	switch {
	case m == nil && number.MatchString(text):
		return 0, errors.New("needs a unit (B, KiB, MiB, GiB or TiB), such as 64MiB")
	case m == nil:
		return 0, errors.New("must be a whole number with its unit (B, KiB, MiB, GiB or TiB), such as 64MiB")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	if unit := sizeUnits[m[2]]; n <= math.MaxInt64/unit {
		return n * unit, nil
	}
	return math.MaxInt64, nil
}

// String writes the duration as a file would: 168h, not 168h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if s != 0 && int64(s)%sizeUnits[unit] == 0 {
			return fmt.Sprintf("%d%s", int64(s)/sizeUnits[unit], unit)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}
