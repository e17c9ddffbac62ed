package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestExpandsVariablesOnceInsideValues(t *testing.T) {
	t.Parallel()
	vars := env{"A": "a", "EMPTY": "", "REF": "${A}$$", "_x1": "u"}
	for text, want := range map[string]string{
		"":                   "",
		"plain":              "plain",
		"${A}":               "a",
		"<${A}${A}>":         "<aa>",
		"${_x1}":             "u",
		"${REF}":             "${A}$$",
		"${EMPTY}":           "",
		"${EMPTY:-d}":        "d",
		"${NONE:-}":          "",
		"${NONE:-$$x:-y}":    "$$x:-y",
		"${A:-d}":            "a",
		"$$":                 "$",
		"$${A}":              "${A}",
		"$$$${A}":            "$${A}",
		"$$A":                "$A",
		"cost: 5$":           "cost: 5$",
		"{{$x := .a}}{{$x}}": "{{$x := .a}}{{$x}}",
		"$A.":                "$A.",
	} {
		got, _, err := expand(text, vars.lookUp)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestRefusesVariablesThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	const malformed = "has a ${ that is neither ${NAME} nor ${NAME:-default}; $${ stands for the text"
	for text, want := range map[string]string{
		"${NONE}":          "the variable NONE is not set; ${NONE:-…} gives it a default",
		"a${NONE}b":        "the variable NONE is not set; ${NONE:-…} gives it a default",
		"$NONE":            "is not expanded as it stands; write ${NONE} for the variable or $$NONE for the text",
		"${}":              malformed,
		"${":               malformed,
		"${A":              malformed,
		"${A-b}":           malformed,
		"${A:?b}":          malformed,
		"${1}":             malformed,
		"${ A }":           malformed,
		"${NONE:-${NONE}}": malformed,
	} {
		_, _, err := expand(text, env{}.lookUp)
		require.EqualError(t, err, want, text)
	}
}

func TestVariableIsReadAsItsKeysType(t *testing.T) {
	t.Parallel()
	vars := env{"N": "20", "ON": "false", "F": "1.5", "D": "3s", "S": "2MiB", "T": "12", "K": "true", "OLD": "010"}
	c := parse(t, file(`replication: {enabled: "${ON}", slot: "s${T}", publication: "${K}", max_retained_wal: "${S}"}
relay: {batch_size: "${N}0", retry: {multiplier: "${F}", jitter: "${NONE:-0.5}"}, shutdown_timeout: "${D}"}
poller:
  interval: ${D}
`), vars)
	require.False(t, c.Replication.Enabled)
	require.Equal(t, "s12", c.Replication.Slot)
	require.Equal(t, "true", c.Replication.Publication)
	require.Equal(t, Size(2<<20), c.Replication.MaxRetainedWAL)
	require.Equal(t, 200, c.Relay.BatchSize)
	require.Equal(t, Retry{MaxAttempts: 10, Initial: seconds(1), Max: seconds(300), Multiplier: 1.5, Jitter: 0.5}, c.Relay.Retry)
	require.Equal(t, 3*time.Second, time.Duration(c.Poller.Interval))

	requireRefused(t, file("relay: {batch_size: \"${OLD}\"}\n"), vars, "1: relay.batch_size: must be a whole number in plain digits")
	requireRefused(t, file("replication: {enabled: \"${N}\"}\n"), vars, "1: replication.enabled: must be true or false")
}

func TestKeysAreNotExpanded(t *testing.T) {
	t.Parallel()
	requireRefused(t, file("\"${A}\": {}\n"), env{"A": "log"}, `1: "${A}": unknown key`)
}

func TestPasswordFromAVariableReachesTheServerAsItIs(t *testing.T) {
	t.Parallel()
	const password = "p$A${A}$$ #:!'\"\n\\{}%&*- @/"
	c := parse(t, file("database:\n  url: host=h user=u password=${PASSWORD}\n"),
		env{"PASSWORD": `'p$A${A}$$ #:!\'"` + "\n" + `\\{}%&*- @/'`})
	parsed, err := pgx.ParseConfig(string(c.Database.URL))
	require.NoError(t, err)
	require.Equal(t, password, parsed.Password)
}

// Whatever a variable holds and however its value is written, what surrounds it and
// what is in it arrive byte for byte.
func TestVariableArrivesByteForByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := string(rapid.SliceOf(rapid.OneOf(rapid.ByteRange(1, 255), rapid.SampledFrom([]byte("${}:-#!'\"\n\t %&*|>")))).Draw(t, "value"))
		before := rapid.StringMatching(`[a-z {}'"#:$]*[a-z]`).Draw(t, "before")
		style := rapid.SampledFrom([]yaml.Style{yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle, yaml.LiteralStyle}).Draw(t, "style")
		reference := rapid.SampledFrom([]string{"${V}", "${V:-}", "${NONE:-}${V}"}).Draw(t, "reference")
		written, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: "kind"},
			{Kind: yaml.ScalarNode, Style: style, Value: strings.ReplaceAll(before, "$", "$$") + reference + "."},
		}})
		require.NoError(t, err)
		c, err := Parse("f", []byte(route(fmt.Sprintf("-\n%s  to: bookings", indent(2, string(written))))), env{"V": value}.lookUp)
		require.NoError(t, err)
		require.Equal(t, before+value+".", c.Outboxes[0].Routes[0].Kind)
	})
}
