package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SessionConfig prepares a parsed connection string for one of the relay's own sessions.
// Text output must not depend on the role's settings, no setting of the role may end or
// refuse the relay's statements, and a session on a replica is of no use.
//
// The planner settings are measured: custom plans cost more than they gain, a
// plan made while a queue table is empty would read it from end to end for ever,
// and compiling pays for no statement this short.
func SessionConfig(base *pgx.ConnConfig, application string) *pgx.ConnConfig {
	c := base.Copy()
	own := map[string]string{
		"application_name":                    application,
		"datestyle":                           "ISO, MDY",
		"intervalstyle":                       "postgres",
		"timezone":                            "UTC",
		"bytea_output":                        "hex",
		"extra_float_digits":                  "1",
		"client_encoding":                     "UTF8",
		"standard_conforming_strings":         "on",
		"quote_all_identifiers":               "off", // an outbox's name is the same for every session
		"default_transaction_read_only":       "off",
		"default_transaction_isolation":       "read committed",
		"synchronous_commit":                  "off",
		"statement_timeout":                   "5s",
		"lock_timeout":                        "1s",
		"idle_in_transaction_session_timeout": "0",
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off",
		"jit":                                 "off",
		"max_parallel_workers_per_gather":     "0",
	}
	for name, value := range base.RuntimeParams {
		if _, ok := own[strings.ToLower(name)]; !ok { // names of settings have no case
			own[name] = value
		}
	}
	c.RuntimeParams = own
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // whatever a pooler would want: there is none
	if c.ConnectTimeout == 0 || c.ConnectTimeout > connectTimeout {
		c.ConnectTimeout = connectTimeout
	}
	c.AfterConnect = AsStored
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return c
}

// AsStored has a session take text as it lies in a database whose encoding says nothing of it (SQL_ASCII): the server would refuse to hand out
// a row with a stray byte, and the row could be neither streamed, nor sent, nor buried.
func AsStored(ctx context.Context, conn *pgconn.PgConn) error {
	if conn.ParameterStatus("server_encoding") != "SQL_ASCII" {
		return nil
	}
	return conn.Exec(ctx, `SET client_encoding = SQL_ASCII`).Close()
}

// connectTimeout bounds one host's connect, so that a dead first host of several costs little.
const connectTimeout = 5 * time.Second

// connect opens one session of the relay's, with settings of its own where it has some.
func (r *Relay) connect(ctx context.Context, application string, changes ...func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	cfg := SessionConfig(r.cfg.Conn, application)
	for _, change := range changes {
		change(cfg)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting %s: %w", application, err)
	}
	return conn, nil
}

const closeWithin = time.Second

// CloseSession ends a session, nil included, without waiting long for a server that is gone.
func CloseSession(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = conn.Close(ctx) // the server forgets the session either way
}

// sqlState is the error's SQLSTATE, empty if the server did not answer with one.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// sessionLost says whether the session cannot be used any more: its connection broke, or the
// server ended it (class 57P).
func sessionLost(conn *pgx.Conn, err error) bool {
	if err == nil {
		return false
	}
	state := sqlState(err)
	return conn.IsClosed() || state == "" || (len(state) >= 3 && state[:3] == "57P")
}

// RowFault says whether a statement failed for what is in a row rather than for the table's or the server's state: a value that
// cannot be converted or read, a constraint, a trigger that raises.
func RowFault(err error) bool {
	state := sqlState(err)
	return len(state) == 5 && slices.Contains([]string{"09", "21", "22", "23", "44", "54", "P0", "XX"}, state[:2])
}

// Passing says that the server has nothing against a statement and will answer it at another time: somebody has a table locked, or the
// server is short of something.
func Passing(err error) bool {
	state := sqlState(err)
	return state == lockNotAvailable || state == "57014" || len(state) == 5 && slices.Contains([]string{"40", "53"}, state[:2])
}

// objection is what the server has against a statement itself, which it reads now; nil where the session or the moment is to blame.
func objection(conn *pgx.Conn, err error) *pgconn.PgError {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || sessionLost(conn, err) || Passing(err) {
		return nil
	}
	return pg
}

// storable makes text from outside fit a text column: no NUL, and nothing that the server's encoding may not have.
func storable(conn *pgx.Conn, text string) string {
	unicode := conn.PgConn().ParameterStatus("server_encoding") == "UTF8"
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return -1
		case r > utf8.RuneSelf-1 && !unicode:
			return '?'
		default:
			return r
		}
	}, text)
}

// PublicError gives an error's text without what a connection string holds: pgx's connect errors
// name user and database, never the password, and PostgreSQL's messages are kept to message and code,
// as details may quote a row.
func PublicError(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	}
	return strings.Join(strings.Fields(err.Error()), " ") // pgx writes a line for each address
}

// NotifyChannel is what commands notify, with the outbox's name as payload, to wake a running relay.
const NotifyChannel = "pgrelay"
