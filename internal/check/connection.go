package check

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/relay"
)

// connect opens a session with the relay's settings, in which nothing can be written.
func connect(ctx context.Context, base *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	c := relay.SessionConfig(base, "pgrelay check")
	c.RuntimeParams["default_transaction_read_only"] = "on"
	c.RuntimeParams["statement_timeout"] = statementTimeout
	return pgx.ConnectConfig(ctx, c)
}

// judgeConnect says why there is no connection.
func judgeConnect(err error, role, database string) Line {
	const name = "connection"
	role, database = quote(role), quote(database)
	var pg *pgconn.PgError
	var network *net.OpError
	var lookup *net.DNSError
	switch {
	case errors.As(err, &pg):
		fix := map[string]string{
			"28P01": "correct the password in database.url (percent-encoded if it is a URL), or set it: ALTER ROLE " + role + " PASSWORD '…'",
			"28000": "make the role (CREATE ROLE " + role + " LOGIN PASSWORD '…'), or let it in by a line of pg_hba.conf",
			"3D000": "correct the database in database.url, or make it: CREATE DATABASE " + database,
			"42501": "GRANT CONNECT ON DATABASE " + database + " TO " + role,
			"53300": "end sessions that nobody needs (pg_stat_activity), or raise max_connections",
			"08P01": poolerFix, // a start-up parameter that it doesn't know
			"0A000": poolerFix,
		}[pg.Code]
		if fix == "" {
			fix = "see the server's log, and correct database.url"
		}
		if fix == poolerFix {
			return failure(name, fix, "a pooler answers instead of PostgreSQL: %s", relay.PublicError(err))
		}
		return failure(name, fix, "PostgreSQL refuses the connection: %s", relay.PublicError(err))
	case errors.Is(err, pgconn.ErrStandbyConnection):
		return failure(name, "point database.url at the primary, or list all hosts in it", "the server is a replica, which takes no writes")
	case errors.As(err, &lookup):
		return failure(name, "correct the host in database.url", "the host of database.url cannot be found")
	case errors.Is(err, context.DeadlineExceeded):
		return failure(name, "check host, port and firewall of database.url", "PostgreSQL does not answer within %s", stepTimeout)
	case errors.As(err, &network):
		return failure(name, "start PostgreSQL, or correct host and port in database.url", "PostgreSQL is out of reach: %s", network)
	}
	return failure(name, "correct database.url", "no connection: %s", relay.PublicError(err))
}

const poolerFix = "connect directly to PostgreSQL: put its own host and port into database.url, not a pooler's"

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
