package config

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func (v *validator) database() {
	const key = "database.url"
	url := string(v.c.Database.URL)
	if strings.TrimSpace(url) == "" {
		v.report(key, "is empty; write url: ${DATABASE_URL} and set DATABASE_URL, e.g. to postgres://user:password@host:5432/database")
		return
	}
	if _, err := pgxpool.ParseConfig(url); err != nil {
		v.report(key, "%s", explainURL(url, err))
	}
}

// namedSettings are those that pgx names when it refuses their value, a longer name
// before one that it contains.
var namedSettings = []string{
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime_jitter", "pool_max_conn_lifetime",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
	"sslmode", "sslcertmode", "sslnegotiation", "connect_timeout", "target_session_attrs", "channel_binding",
	"require_auth", "min_protocol_version", "max_protocol_version", "default_query_exec_mode",
	"statement_cache_capacity", "description_cache_capacity", "service", "port", "TLS",
}

// explainURL says what is wrong with a connection string in our own words: pgx quotes
// it, and what pgx hides is its best guess at where the password stands.
func explainURL(url string, err error) string {
	var file *fs.PathError
	if errors.As(err, &file) {
		return "names a file that can't be read (sslrootcert, sslcert, sslkey or a service file)"
	}
	about := ""
	if parse := new(pgconn.ParseConfigError); errors.As(err, &parse) {
		own := *parse
		own.ConnString = ""
		for _, name := range namedSettings {
			if strings.Contains(own.Error(), name) {
				about = ", " + name + " first"
				break
			}
		}
	}
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		return "is no URL that PostgreSQL's clients take; check host, port and parameters" + about +
			", and percent-encode special characters of the password (/ is %2F, @ is %40, % is %25)"
	}
	return "is neither a postgres:// URL nor keyword=value pairs that PostgreSQL's clients take" + about +
		"; a value with blanks stands in single quotes"
}
