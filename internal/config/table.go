package config

import (
	"errors"
	"regexp"
	"strings"
)

// Table is a table's name in parts, unquoted. Schema is empty where none is named.
type Table struct{ Schema, Name string }

var (
	identifierPart = regexp.MustCompile(`^(?:"((?:[^"\x00]|"")+)"|([A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_$\x{80}-\x{10FFFF}]*))`)
	asciiUpper     = regexp.MustCompile(`[A-Z]+`)
)

var errNotTable = errors.New("must be table or schema.table; a name with other characters than letters, digits and _ " +
	`stands in double quotes, as in SQL: '"My Table"'`)

// ParseTable reads table or schema.table as SQL does: names fold to lower case unless quoted.
func ParseTable(text string) (Table, error) {
	var parts []string
	for rest := text; ; {
		m := identifierPart.FindStringSubmatch(rest)
		if m == nil {
			return Table{}, errNotTable
		}
		name := strings.ReplaceAll(m[1], `""`, `"`)
		if name == "" {
			name = asciiUpper.ReplaceAllStringFunc(m[2], strings.ToLower)
		}
		if !identifier(name) {
			return Table{}, errors.New("has a name of more than 63 bytes, which PostgreSQL would cut")
		}
		parts = append(parts, name)
		rest = rest[len(m[0]):]
		switch {
		case rest == "" && len(parts) == 1:
			return Table{Name: parts[0]}, nil
		case rest == "" && len(parts) == 2:
			return Table{Schema: parts[0], Name: parts[1]}, nil
		case rest == "":
			return Table{}, errors.New("has more than two parts; one pgrelay relays the tables of one database, so schema.table is enough")
		case rest[0] != '.':
			return Table{}, errNotTable
		}
		rest = rest[1:]
	}
}

// identifier says whether PostgreSQL takes the name as it is, in quotes.
func identifier(name string) bool {
	return name != "" && len(name) <= 63 && !strings.Contains(name, "\x00")
}
