package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/relay"
)

// The predicate of an index is read as the server prints it, which depends on the column's type.
func TestTheAdviceForATableWithAStatusMendsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ typ, values string }{
		"text":    {"text DEFAULT 'PENDING'", ""},
		"varchar": {"varchar(20)", ""},
		"enum":    {`public."State 1"`, ""},
		"code":    {"smallint", ", pending: '0', processing: '-1', published: '2', dead: '3'"},
		"quotes":  {"text", `, pending: "it's new", processing: "it's busy"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := healthy(t, pgtest.Migrated(t))
			p.exec(`CREATE TYPE public."State 1" AS ENUM ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED');
				ALTER TABLE bookings ADD COLUMN "my Status" ` + c.typ)
			p.configure("{table: public.bookings,", "{table: public.bookings, status: {column: my Status"+c.values+"},")
			p.take(p.wellBut("outbox public.bookings", "no column claimed_at or updated_at tells since when", "run: ALTER TABLE public.bookings ADD COLUMN claimed_at").Fix)
			lines := failing(p.examine(), Failure)
			require.Len(t, lines, 7, "the rights, and six indexes")
			require.Contains(t, lines[0].Fix, `GRANT UPDATE ("my Status"), UPDATE (claimed_at) ON public.bookings`)
			for _, line := range lines {
				p.take(line.Fix)
			}
			p.well()
		})
	}
}

func TestStatusesThatNoKeyNamesAreTold(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER TABLE bookings ADD COLUMN status text, ADD COLUMN claimed_at timestamptz`)
	p.configure("{table: public.bookings,", "{table: public.bookings, status: {column: status},")
	for _, line := range failing(p.examine(), Failure) {
		p.take(line.Fix)
	}
	p.well()
	said := func(level Level) (texts []string) {
		for _, line := range failing(p.examine(), level) {
			if line.Name == "outbox public.bookings" {
				texts = append(texts, line.Text)
			}
		}
		return texts
	}
	p.exec(`INSERT INTO bookings (event_type, payload, status) VALUES ('a', '1', 'pending'), ('a', '1', 'pending'), ('a', '1', NULL)`)
	require.Equal(t, []string{"3 of its 3 newest rows have a status that the relay leaves alone: pending (2), NULL (1)"}, said(Warning), "a slip in the mapping")
	p.exec(`INSERT INTO bookings (event_type, payload, status) VALUES ('a', '1', 'PENDING')`)
	require.Empty(t, said(Warning))
	require.Contains(t, said(OK), "3 of its 4 newest rows have a status that the relay leaves alone: pending (2), NULL (1)")
}

func TestConstraintThatWouldRefuseAStampIsNamedBeforeTheSend(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER TABLE bookings ADD COLUMN sent_by text, ADD CONSTRAINT known CHECK (published_at IS NULL OR sent_by IS NOT NULL),
		ADD CONSTRAINT priced CHECK (payload IS NOT NULL)`)
	p.well()
	p.exec(`INSERT INTO bookings (event_type, payload, sent_by) VALUES ('a', '1', 'x'), ('a', '1', NULL)`)
	lines := failing(p.examine(), Failure)
	require.Len(t, lines, 2)
	require.Equal(t, `its constraint "known" refuses the mark of death for 1 of the 2 newest pending rows`, lines[0].Text)
	require.Equal(t, `its constraint "known" refuses the mark of delivery for 1 of the 2 newest pending rows`, lines[1].Text)
}

func TestIndexesOfAStatusAreJudged(t *testing.T) {
	t.Parallel()
	pending := relay.Index{Leading: 1, Columns: []string{"id"}, Where: []string{"status = 'A'", "at IS NULL"}}
	both := relay.Index{Leading: 2, Columns: []string{"key", "id"}, Where: []string{"status IN ('A', 'it''s')", "key IS NOT NULL"}}
	for name, c := range map[string]struct {
		want   relay.Index
		ix     index
		serves bool
	}{
		"as advised":                 {pending, index{[]string{"id"}, "((status = 'A'::text) AND (at IS NULL))"}, true},
		"more values":                {pending, index{[]string{"id"}, "(status = ANY (ARRAY['A'::text, 'B'::text]))"}, true},
		"another value":              {pending, index{[]string{"id"}, "(status = 'B'::text)"}, false},
		"another column":             {pending, index{[]string{"id"}, "(state = 'A'::text)"}, false},
		"any but that":               {pending, index{[]string{"id"}, "(status <> 'A'::text)"}, false},
		"not restricted":             {pending, index{[]string{"id"}, ""}, false},
		"all rows by their status":   {pending, index{[]string{"status", "id"}, ""}, true},
		"by their status, deferred":  {pending, index{[]string{"status", "id"}, "(at IS NULL)"}, true},
		"by their status, of a kind": {pending, index{[]string{"status", "id"}, "(kind = 'A'::text)"}, false},
		"by their status alone":      {pending, index{[]string{"status"}, ""}, false},
		"by another order":           {pending, index{[]string{"status", "at"}, ""}, false},
		"or something else":          {pending, index{[]string{"id"}, "((status = 'A'::text) OR (kind = 'B'::text))"}, false},
		"both":                       {both, index{[]string{"key", "id"}, "((status)::text = ANY ((ARRAY['A'::character varying, 'it''s'::character varying])::text[]))"}, true},
		"one of both":                {both, index{[]string{"key", "id"}, "((status)::text = 'A'::text)"}, false},
		"both by their status":       {both, index{[]string{"status", "key", "id"}, ""}, false},
		"an enum elsewhere":          {both, index{[]string{"key", "id"}, `(status = ANY (ARRAY['A'::"My Types"."State 7", 'it''s'::"My Types"."State 7"]))`}, true},
	} {
		require.Equal(t, c.serves, serves(c.ix, c.want), name)
	}
}
