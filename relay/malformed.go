package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
)

// A row of which no message can be made is dead. Where its outbox says on_malformed: stamp, it is marked as if it had been sent instead,
// with further columns set by the user's own assignments, and neither a letter nor its ordering key keeps it.

func (t *Table) stampsMalformed() bool { return t.cfg.OnMalformed == config.MalformedStamp }

// dropping is the part of the stamp that does so. The user's assignments see the row alone: nothing else there has a name that
// he could mean.
func (t *Table) dropping() string {
	if !t.stampsMalformed() {
		return ""
	}
	return ",\ndropped AS (" + t.dropSQL("SELECT t.k AS \"pgrelay k\" FROM taken t WHERE t.same AND t.pending AND t.outcome = 'dropped'") +
		" RETURNING o." + quote(t.names.id) + " AS k, " + t.settles() + " AS settled)"
}

func (t *Table) orDropped() string {
	if !t.stampsMalformed() {
		return ""
	}
	return " UNION ALL SELECT * FROM dropped"
}

// dropSQL marks the rows whose keys are selected.
func (t *Table) dropSQL(keys string) string {
	set := ""
	if t.cfg.Set != "" {
		set = ", " + t.cfg.Set + "\n"
	}
	return fmt.Sprintf(`UPDATE %s o SET %s%s FROM (%s) "pgrelay t" WHERE o.%s = "pgrelay t"."pgrelay k"`,
		t.relation(), t.delivering(), set, keys, quote(t.names.id))
}

// trySet has the server read the assignments. It changes nothing.
func (t *Table) trySet(ctx context.Context, conn *pgx.Conn) (problem, err error) {
	if t.cfg.Set == "" {
		return nil, nil
	}
	_, err = conn.Exec(ctx, "EXPLAIN "+t.dropSQL(fmt.Sprintf(`SELECT NULL::%s AS "pgrelay k"`, t.IDColumn.Type)))
	if pg := objection(conn, err); pg != nil {
		return t.refuseSQL("set", "UPDATE", pg, conn.Config().User), nil
	}
	if err != nil {
		return nil, fmt.Errorf("trying set of %s: %w", t.Name, err)
	}
	return nil, nil
}

// malformed is the verdict on a row of which there is no message.
func (t *Table) malformed(why Result) verdict {
	kind := verdictDead
	if t.stampsMalformed() {
		kind = verdictDropped
	}
	return verdict{kind: kind, reason: why.Reason, detail: why.Detail}
}

// dropped counts a malformed row that was stamped, and logs it unless many are alike.
func (r *Relay) dropped(d *delivery) {
	r.metrics.malformed.WithLabelValues(d.table.Name).Inc()
	write, last := r.lines.line(time.Now(), d.table.Name+" stamped "+d.verdict.reason)
	if !write {
		return
	}
	line := r.cfg.Log.Warn().Str("outbox", d.table.Name).Str("id", d.row.ID).Str("kind", d.row.Kind).
		Str("reason", d.verdict.reason).Str("detail", d.verdict.detail)
	if last {
		line.Str("more", "others of this reason are not logged for a minute")
	}
	line.Msg("row is malformed: stamped without being sent")
}
