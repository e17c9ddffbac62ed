package check

import (
	"context"
	"fmt"
	"strings"

	"pgrelay/replication"
)

// publicationFacts is a publication and what this role may do about it.
type publicationFacts struct {
	replication.PublicationState
	Name       string
	MayCreate  bool // CREATE on the database
	OwnsTables bool
}

func (d *doctor) checkPublication(ctx context.Context) error {
	f := publicationFacts{Name: d.in.Config.Replication.Publication, MayCreate: d.server.MayCreate}
	if len(d.tables) == 0 {
		d.add(skipped("publication "+f.Name, "no outbox could be opened"))
		return nil
	}
	var tables []replication.Table
	var oids []uint32
	for _, t := range d.tables {
		tables = append(tables, replication.Table{Schema: t.Schema, Name: t.Relation, IDColumn: t.IDColumn.Name, Canonical: t.Name})
		oids = append(oids, t.OID)
	}
	var err error
	if f.PublicationState, err = replication.InspectPublication(ctx, d.conn, f.Name, tables); err != nil {
		return err
	}
	err = d.conn.QueryRow(ctx, `SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_catalog.pg_class WHERE oid = ANY ($1)`, oids).Scan(&f.OwnsTables)
	if err != nil {
		return fmt.Errorf("reading the owners of the outboxes: %w", err)
	}
	d.add(judgePublication(f)...)
	return nil
}

// judgePublication says whether the stream will carry every outbox.
func judgePublication(f publicationFacts) (lines []Line) {
	name := "publication " + f.Name
	if f.LeftOut != "" {
		lines = append(lines, warning(name, "run: ALTER TABLE … SET LOGGED, or let the poller relay it",
			"the stream cannot carry every outbox: %s", f.LeftOut))
	}
	statements := strings.Join(f.Statements, "; ")
	mayNot := !f.OwnsTables || !f.Exists && !f.MayCreate
	switch {
	case statements == "" && f.Exists:
		return append(lines, ok(name, "carries the inserts of every outbox that it can"))
	case statements == "":
		return lines
	case f.Refused != "":
		return append(lines, failure(name, "have its owner run: "+statements, "does not carry every outbox and %s", f.Refused))
	case mayNot && !f.Exists:
		return append(lines, failure(name, "have the owner of the tables run: "+statements, "is not there, and this role may not make it"))
	case mayNot:
		return append(lines, failure(name, "have the owner of the tables run: "+statements, "does not carry every outbox, and this role doesn't own them"))
	case !f.Exists:
		return append(lines, ok(name, "is not there yet; `pgrelay run` makes it"))
	}
	return append(lines, ok(name, "does not carry every outbox yet; `pgrelay run` runs: %s", statements))
}
