package relay

import (
	"fmt"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// outboxKind is a table that somebody might bring.
type outboxKind struct {
	name    string
	ddl     []string
	outbox  config.Outbox
	insert  string // $1: a body that the recorder tells rows by, $2 the ordering key; returns the key as text
	pending string // how many rows are pending
	ordered bool
	dead    bool // has a dead mark of its own
	deletes bool // what was delivered
}

var everythingToQueue = []config.Route{{Kind: "*", To: "queue"}}

func withBody(to string, order string) []config.Route {
	return []config.Route{{Kind: "*", To: to, Body: "{{.body}}", Order: order}}
}

// ownStatus is the status column that a table is likely to have.
var ownStatus = config.Status{Column: "status", Pending: "PENDING", Processing: "PROCESSING", Published: "PUBLISHED", Dead: "FAILED"}

var outboxKinds = []outboxKind{
	{
		name:    "our own",
		outbox:  config.Outbox{Table: "pgrelay.outbox_events", Routes: []config.Route{{Kind: "*", To: "fifo"}}},
		insert:  `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) VALUES ('x', $2, to_jsonb($1::text)) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL`, ordered: true, dead: true,
	},
	{
		name:    "bare with a body template",
		ddl:     []string{`CREATE TABLE public.bare (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text, published_at timestamptz)`},
		outbox:  config.Outbox{Table: "public.bare", Routes: withBody("queue", "")},
		insert:  `INSERT INTO public.bare (body) SELECT $1 WHERE $2 <> '' RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.bare WHERE published_at IS NULL`,
	},
	{
		name: "odd names",
		ddl: []string{`CREATE SCHEMA "My ""Schema"" @name"`,
			`CREATE TABLE "My ""Schema"" @name"."Out$1'Box" ("@id" text PRIMARY KEY DEFAULT 'It''s "' || gen_random_uuid(), "@name" text, "%s $1 @o.id" timestamp, "Dead@@" timestamptz, "at $2" timestamp DEFAULT now(), "@outbox" timestamptz)`},
		outbox: config.Outbox{Table: `"My ""Schema"" @name"."Out$1'Box"`, Routes: []config.Route{{Kind: "*", To: "queue", Body: `{{index . "@name"}}`}},
			Columns: config.Columns{ID: "@id", PublishedAt: "%s $1 @o.id", DeadAt: "Dead@@", CreatedAt: "at $2", AvailableAt: "@outbox", Payload: "@name"}},
		insert:  `INSERT INTO "My ""Schema"" @name"."Out$1'Box" ("@name") SELECT $1 WHERE $2 <> '' RETURNING "@id"`,
		pending: `SELECT count(*)::text FROM "My ""Schema"" @name"."Out$1'Box" WHERE "%s $1 @o.id" IS NULL AND "Dead@@" IS NULL`, dead: true,
	},
	{
		name: "odd names in order",
		ddl: []string{`CREATE TABLE public."Ordered" ("@p.id" numeric PRIMARY KEY DEFAULT (random() * 1e6)::numeric(12,4), event_id text UNIQUE DEFAULT 'e' || gen_random_uuid(), "@keys" bigint DEFAULT 7, body varchar(50),
				"@o.key" bigint GENERATED ALWAYS AS IDENTITY, "n @dead" int NOT NULL DEFAULT 1, published_at timestamptz, available_at timestamptz)`},
		outbox:  config.Outbox{Table: `public."Ordered"`, Routes: withBody("fifo", ""), OrderBy: []string{"n @dead", "@o.key"}, Columns: config.Columns{ID: "@p.id", OrderingKey: "@keys"}},
		insert:  `INSERT INTO public."Ordered" (body, "@keys") VALUES ($1, $2::text::bigint) RETURNING "@p.id"::text`,
		pending: `SELECT count(*)::text FROM public."Ordered" WHERE published_at IS NULL`, ordered: true,
	},
	{
		name: "enum, domains and varchar",
		ddl: []string{`CREATE TYPE public.kind AS ENUM ('a', 'b')`, `CREATE DOMAIN public.key_of AS bigint CHECK (VALUE > 0)`, `CREATE DOMAIN public.name_of AS varchar(20)`, `CREATE SEQUENCE public.s`,
			`CREATE TABLE public.typed (id public.key_of PRIMARY KEY DEFAULT nextval('public.s'), event_id uuid UNIQUE DEFAULT gen_random_uuid(), event_type public.kind DEFAULT 'b', ordering_key public.name_of DEFAULT 'k', payload json, published_at timestamptz, dead_at timestamptz)`},
		outbox:  config.Outbox{Table: "public.typed", Ledger: "pgrelay.processed_events", Routes: []config.Route{{Kind: "b", To: "fifo"}}},
		insert:  `INSERT INTO public.typed (payload, ordering_key) VALUES (to_json($1::text), $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.typed WHERE published_at IS NULL AND dead_at IS NULL`, ordered: true, dead: true,
	},
	{
		name: "partitioned",
		ddl: []string{`CREATE TABLE public.parted (id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid DEFAULT gen_random_uuid(), event_type varchar(9) DEFAULT 'x', ordering_key char(3) DEFAULT 'k', payload text, region int DEFAULT (random() * 9)::int, published_at timestamptz, PRIMARY KEY (id, region)) PARTITION BY RANGE (region)`,
			`CREATE TABLE public.parted_low PARTITION OF public.parted FOR VALUES FROM (0) TO (5)`, `CREATE TABLE public.parted_high PARTITION OF public.parted DEFAULT`},
		outbox:  config.Outbox{Table: "public.parted", Routes: []config.Route{{Kind: "x", To: "fifo"}}},
		insert:  `INSERT INTO public.parted (payload, ordering_key) VALUES (to_json($1::text), $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.parted WHERE published_at IS NULL`, ordered: true,
	},
	{
		name: "joined",
		ddl: []string{`CREATE TABLE public.jobs (id bigint PRIMARY KEY, topic text, ready bool DEFAULT true)`,
			`CREATE TABLE public.of_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), job_id bigint UNIQUE GENERATED ALWAYS AS IDENTITY, key text, body text, published_at timestamptz)`,
			`CREATE FUNCTION public.add_job() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.jobs VALUES (NEW.job_id, 'topic'); RETURN NEW; END$$`,
			`CREATE TRIGGER add_job BEFORE INSERT ON public.of_jobs FOR EACH ROW EXECUTE FUNCTION public.add_job()`},
		outbox: config.Outbox{Table: "public.of_jobs", Join: "JOIN public.jobs j ON j.id = o.job_id", Select: "j.topic, j.ready AS open", Ready: "j.ready", OrderBy: []string{"job_id"},
			Kind: config.RowKind{Column: "topic"}, Columns: config.Columns{OrderingKey: "key"}, Routes: []config.Route{{Kind: "topic", To: "fifo", Body: "{{.body}}"}}},
		insert:  `INSERT INTO public.of_jobs (body, key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.of_jobs WHERE published_at IS NULL`, ordered: true,
	},
	{
		name:    "deleted when published",
		ddl:     []string{`CREATE TABLE public.fleeting (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), ordering_key text, body text, published_at timestamptz, dead_at timestamptz)`},
		outbox:  config.Outbox{Table: "public.fleeting", OnPublished: config.PublishedDelete, Routes: withBody("fifo", "")},
		insert:  `INSERT INTO public.fleeting (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.fleeting WHERE published_at IS NULL AND dead_at IS NULL`, ordered: true, dead: true, deletes: true,
	},
	{
		name: "status as text",
		ddl: []string{`CREATE TABLE public.statused (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), event_type text DEFAULT 'x', ordering_key text, payload jsonb,
			status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED', 'CANCELLED')), claimed_at timestamptz, created_at timestamptz DEFAULT now())`},
		outbox:  config.Outbox{Table: "public.statused", Status: ownStatus, Routes: []config.Route{{Kind: "*", To: "fifo"}}},
		insert:  `INSERT INTO public.statused (payload, ordering_key) VALUES (to_jsonb($1::text), $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.statused WHERE status IN ('PENDING', 'PROCESSING')`, ordered: true, dead: true,
	},
	{
		name: "status as an enum, with published_at",
		ddl: []string{`CREATE TYPE public."State @dead" AS ENUM ('new @o.id', 'busy', 'sent', 'it''s \\broken')`,
			`CREATE TABLE public.states (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), ordering_key text, body text, nth bigint GENERATED ALWAYS AS IDENTITY, "State @mark" public."State @dead" DEFAULT 'new @o.id', sent_at timestamp, dead_at timestamptz, touched timestamptz NOT NULL DEFAULT now())`},
		outbox: config.Outbox{Table: "public.states", OrderBy: []string{"nth"}, Columns: config.Columns{PublishedAt: "sent_at", UpdatedAt: "touched"}, Routes: withBody("fifo", ""),
			Status: config.Status{Column: "State @mark", Pending: "new @o.id", Processing: "busy", Published: "sent", Dead: `it's \\broken`}},
		insert:  `INSERT INTO public.states (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.states WHERE "State @mark" IN ('new @o.id', 'busy') AND sent_at IS NULL AND dead_at IS NULL`, ordered: true, dead: true,
	},
	{
		name: "status as a code, with all written columns",
		ddl: []string{`CREATE TABLE public.coded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), ordering_key text, body text, state smallint DEFAULT 0, available_at timestamptz,
			attempts smallint NOT NULL DEFAULT 0, next_attempt_at timestamptz NOT NULL DEFAULT now(), last_error varchar(8) NOT NULL DEFAULT '', claimed_at timestamptz, updated_at timestamptz)`},
		outbox: config.Outbox{Table: "public.coded", Routes: withBody("fifo", ""),
			Status: config.Status{Column: "state", Pending: "0", Processing: "1", Published: "2", Dead: "-1"}},
		insert:  `INSERT INTO public.coded (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.coded WHERE state IN (0, 1)`, ordered: true, dead: true,
	},
	{
		name: "status, partitioned by it",
		ddl: []string{`CREATE TABLE public.filed (id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid DEFAULT gen_random_uuid(), ordering_key text, body text, status varchar(12) DEFAULT 'PENDING', claimed_at timestamptz, PRIMARY KEY (id, status)) PARTITION BY LIST (status)`,
			`CREATE TABLE public.filed_open PARTITION OF public.filed FOR VALUES IN ('PENDING', 'PROCESSING')`, `CREATE TABLE public.filed_done PARTITION OF public.filed DEFAULT`},
		outbox:  config.Outbox{Table: "public.filed", Status: ownStatus, Routes: withBody("fifo", "")},
		insert:  `INSERT INTO public.filed (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.filed_open`, ordered: true, dead: true,
	},
	{
		name:    "status, deleted when published",
		ddl:     []string{`CREATE TABLE public.passing (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text, status char(12) DEFAULT 'PENDING', updated_at timestamp)`},
		outbox:  config.Outbox{Table: "public.passing", Status: ownStatus, OnPublished: config.PublishedDelete, Routes: withBody("queue", "")},
		insert:  `INSERT INTO public.passing (body) SELECT $1 WHERE $2 <> '' RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.passing WHERE status IN ('PENDING', 'PROCESSING')`, dead: true, deletes: true,
	},
	{
		name: "written columns beside published_at",
		ddl: []string{`CREATE TABLE public.watched (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), ordering_key text, body text, published_at timestamptz,
			tries bigint, next_attempt_at timestamp, last_error text, claimed_at timestamptz)`},
		outbox:  config.Outbox{Table: "public.watched", Columns: config.Columns{Attempts: "tries"}, Routes: withBody("fifo", "")},
		insert:  `INSERT INTO public.watched (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.watched WHERE published_at IS NULL`, ordered: true,
	},
	{
		name:    "small integers without kinds",
		ddl:     []string{`CREATE TABLE public.small (id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb, headers json, ordering_key uuid DEFAULT gen_random_uuid(), published_at timestamptz, available_at date DEFAULT '-infinity')`},
		outbox:  config.Outbox{Table: "public.small", Routes: everythingToQueue},
		insert:  `INSERT INTO public.small (payload) SELECT to_jsonb($1::text) WHERE $2 <> '' RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.small WHERE published_at IS NULL`,
	},
}

// row inserts one and returns its key.
func (f *fixture) row(k *outboxKind, body, key string) string {
	f.t.Helper()
	return f.one(k.insert, body, key)
}

func (f *fixture) waitPending(k *outboxKind, n string) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() error {
		if got := f.one(k.pending); got != n {
			return fmt.Errorf("%s rows are pending", got)
		}
		if got := f.one(`SELECT count(*)::text FROM pgrelay.claims`); got != "0" {
			return fmt.Errorf("%s claims are left", got)
		}
		return nil
	}, "rows are settled")
}

// first are the ids of a look; its last row is the snapshot.
func first(f *fixture, sql string, args ...any) []string {
	f.t.Helper()
	return f.ids(`SELECT id FROM (`+sql+`) AS look(id, xmin, xmax, at) WHERE xmin IS NULL`, args...)
}

func unquoted(body string) string {
	if len(body) > 1 && body[0] == '"' {
		return body[1 : len(body)-1]
	}
	return body
}

// due runs the first page of a look for what is due.
func due(f *fixture, look [2]string) []string {
	f.t.Helper()
	if look[0] == "" {
		return nil
	}
	return f.ids(`SELECT q.id FROM (`+look[0]+`) q(id, at)`, f.relay.rooms())
}
