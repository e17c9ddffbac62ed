package replication

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestAConfigurationThatCannotWorkIsRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Slot: "Drop Table", Publication: ""}, &fakeSink{})
	for _, part := range []string{"no connection", `slot "Drop Table"`, `publication ""`, "no table", "no metrics"} {
		require.ErrorContains(t, err, part)
	}
	conn, err := pgx.ParseConfig("host=localhost")
	require.NoError(t, err)
	_, err = New(Config{Conn: conn, Slot: "a_1", Publication: "Any name", Tables: decoderTables, Metrics: NewMetrics(prometheus.NewRegistry())}, &fakeSink{})
	require.NoError(t, err)
}

func TestTheSessionDoesNotDependOnWhatTheURLSets(t *testing.T) {
	t.Parallel()
	conn, err := pgx.ParseConfig("host=localhost timezone=Asia/Tokyo datestyle=German application_name=mine statement_timeout=5s")
	require.NoError(t, err)
	got := streamConfig(conn).RuntimeParams
	require.Equal(t, map[string]string{
		"application_name": "pgrelay stream", "client_encoding": "UTF8", "DateStyle": "ISO, YMD", "IntervalStyle": "postgres",
		"TimeZone": "UTC", "bytea_output": "hex", "extra_float_digits": "1",
		"default_transaction_read_only": "off", "statement_timeout": "0", "lock_timeout": "0", "replication": "database",
	}, got)
	require.Equal(t, "local", sqlConfig(conn).RuntimeParams["synchronous_commit"], "a publication waits for no standby")
	require.Equal(t, "Asia/Tokyo", conn.RuntimeParams["timezone"], "the caller's is a copy")
}
