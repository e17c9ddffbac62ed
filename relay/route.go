package relay

import (
	"fmt"
	"strconv"
	"strings"

	"pgrelay/internal/config"
)

// What stands in a route's place where there is none, beside noRoute.
const (
	routeSeveral  = -2 // the join finds several rows for the row
	routeUnjoined = -3 // it finds none
)

// routeCase is an SQL expression of the 0-based index of the first route that takes a
// kind, -1 if none does. kindExpr is an expression of type text. Bytes are compared
// (COLLATE "C"), whatever the column's collation; config.MatchKind is the same rule in Go.
func routeCase(routes []config.Route, kindExpr string) string {
	kind := fmt.Sprintf(`COALESCE(%s, '') COLLATE "C"`, kindExpr)
	var sql strings.Builder
	sql.WriteString("CASE")
	for i, route := range routes {
		operator, operand := "=", route.Kind
		if strings.Contains(route.Kind, "*") {
			operator, operand = "LIKE", likePattern.Replace(route.Kind)
		}
		fmt.Fprintf(&sql, " WHEN %s %s %s THEN %d", kind, operator, stringLiteral(operand), i)
	}
	if len(routes) == 0 {
		return strconv.Itoa(noRoute)
	}
	fmt.Fprintf(&sql, " ELSE %d END", noRoute)
	return sql.String()
}

// likePattern makes a LIKE pattern of a kind's pattern; backslash is LIKE's default escape.
var likePattern = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`)

// stringLiteral quotes text for SQL, the same under either standard_conforming_strings.
func stringLiteral(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		quoted = "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
