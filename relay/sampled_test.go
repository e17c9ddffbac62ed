package relay

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestAThousandRowsThatDieAlikeAreTenLinesAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		table := &Table{Name: "o"}
		r := New(Config{Log: zerolog.New(&out), Registerer: prometheus.NewRegistry(), Tables: []*Table{table}})
		die := func(reason string) int {
			out.Reset()
			for range 1000 {
				r.died(table, "1", "k", verdict{kind: verdictDead, reason: reason, detail: "d"})
			}
			return strings.Count(out.String(), `"row is dead"`)
		}
		require.Equal(t, sampledLines, die("empty_body"))
		require.Equal(t, 1, strings.Count(out.String(), "dead list"), "the last line says that there are more")
		require.Zero(t, die("empty_body"))
		require.Equal(t, sampledLines, die("unknown_kind"), "another reason is heard")
		<-time.After(sampledPeriod)
		require.Equal(t, sampledLines, die("empty_body"))
	})
}
