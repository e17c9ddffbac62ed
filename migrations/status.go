package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What [Check] finds wrong; each says what to do about it.
var (
	ErrMissing  = errors.New("the schema pgrelay is not there; run `pgrelay migrate up`")
	ErrOutdated = errors.New("the schema pgrelay is older than this program; run `pgrelay migrate up`")
	ErrNewer    = errors.New("the schema pgrelay is newer than this program; upgrade pgrelay")
)

// Querier is what [Check] and [Status] read through: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Check tells whether the schema is there and current: nil, [ErrMissing],
// [ErrOutdated], [ErrNewer] or what the server said. It needs USAGE on the schema and
// SELECT on its tables.
func Check(ctx context.Context, q Querier) error {
	known, err := embedded()
	if err != nil {
		return err
	}
	applied, err := applied(ctx, q)
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		return ErrMissing
	}
	for version := range applied {
		if version > known[len(known)-1].Version {
			return fmt.Errorf("%w (migration %d)", ErrNewer, version)
		}
	}
	for _, m := range known {
		if _, ok := applied[m.Version]; !ok {
			return fmt.Errorf("%w (%s)", ErrOutdated, m.Name)
		}
	}
	return nil
}

// Status lists the migrations of this program and when each was applied. It needs what
// [Check] needs.
func Status(ctx context.Context, q Querier) ([]Migration, error) {
	known, err := embedded()
	if err != nil {
		return nil, err
	}
	applied, err := applied(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range known {
		known[i].AppliedAt = applied[known[i].Version]
	}
	return known, nil
}

// applied reads the library's table without the library, which would create it. The
// library writes local times of sessions whose time zone is UTC (connConfig).
func applied(ctx context.Context, q Querier) (map[int64]time.Time, error) {
	const query = "SELECT version_id, tstamp AT TIME ZONE 'UTC' FROM " + table + " WHERE version_id > 0 AND is_applied"
	// An error of Query comes back from the rows.
	rows, _ := q.Query(ctx, query)
	versions := map[int64]time.Time{}
	var version int64
	var at time.Time
	_, err := pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		versions[version] = at
		return nil
	})
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the version of schema pgrelay: %w", err)
	}
	return versions, nil
}

// missing tells whether an error says that the table or its schema is not there.
func missing(err error) bool {
	pgErr := (*pgconn.PgError)(nil)
	return errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000")
}

// embedded lists the migrations of this program in order.
func embedded() ([]Migration, error) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("listing the embedded migrations: %w", err)
	}
	known := make([]Migration, 0, len(names))
	for _, name := range names {
		name = path.Base(name)
		digits, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the version of migration %s: %w", name, err)
		}
		known = append(known, Migration{Version: version, Name: name})
	}
	return known, nil
}
