package relay

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestSessionDoesNotDependOnWhatTheURLSets(t *testing.T) {
	t.Parallel()
	base, err := pgx.ParseConfig("host=localhost TimeZone=Asia/Tokyo DateStyle=German Statement_Timeout=1 search_path=app default_query_exec_mode=simple_protocol")
	require.NoError(t, err)
	c := SessionConfig(base, "pgrelay test")
	require.Equal(t, "UTC", c.RuntimeParams["timezone"])
	require.Equal(t, "5s", c.RuntimeParams["statement_timeout"])
	require.Equal(t, "app", c.RuntimeParams["search_path"], "unqualified names in the configuration use it")
	for _, name := range []string{"TimeZone", "DateStyle", "Statement_Timeout"} {
		require.NotContains(t, c.RuntimeParams, name, "which of two spellings wins would be chance")
	}
	require.Equal(t, pgx.QueryExecModeCacheStatement, c.DefaultQueryExecMode)
	require.Equal(t, "Asia/Tokyo", base.RuntimeParams["TimeZone"], "the caller's is left alone")
}
