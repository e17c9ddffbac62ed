package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"pgrelay/relay"
	"pgrelay/replication"
)

func (d *doctor) checkSlot(ctx context.Context) error {
	name := d.in.Config.SlotName(d.in.Conn.Database)
	st, err := replication.Inspect(ctx, d.conn, name)
	if err != nil {
		return err
	}
	// A relay at work has shown that it may replicate, and may have the last sender.
	if st.Holder.OurStream() && !st.Foreign {
		d.add(ok("replication", "a relay is streaming"))
	} else {
		d.add(judgeProbe(replication.Probe(ctx, d.in.Conn), d.server.Role))
	}
	d.add(judgeSlot(name, st, d.server, int64(d.in.Config.Replication.MaxRetainedWAL)))
	d.add(judgeKeepSize(d.server.KeepSize, d.in.Config.Replication.Temporary))
	return nil
}

// judgeProbe judges a session for replication.
func judgeProbe(err error, role string) Line {
	const name = "replication"
	var u *replication.Unavailable
	switch {
	case err == nil:
		return ok(name, "the role may replicate and a WAL sender is free")
	case !errors.As(err, &u):
		return failure(name, "see the server's log, and run `pgrelay check` again", "no session for replication: %s", relay.PublicError(err))
	case u.Reason == replication.ReasonPermission:
		return failure(name, fmt.Sprintf("on Amazon RDS GRANT rds_replication TO %s, elsewhere run: ALTER ROLE %[1]s REPLICATION", quote(role)),
			"the role may not replicate")
	}
	text, fix, _ := strings.Cut(u.Detail, ": ")
	return failure(name, fix, "%s", text)
}

// judgeSlot judges the slot as `run` would find it.
func judgeSlot(name string, st replication.SlotState, f serverFacts, budget int64) Line {
	line := "slot " + name
	const otherName = "configure another replication.slot, or drop this one if nobody needs it: SELECT pg_drop_replication_slot('%s')"
	switch {
	case !st.Exists && f.WALLevel != "logical":
		return skipped(line, "cannot be made before wal_level is logical")
	case !st.Exists && f.Slots >= f.MaxSlots:
		return failure(line, "drop one that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots and restart the server",
			"no replication slot is free: %d of %d are taken", f.Slots, f.MaxSlots)
	case !st.Exists:
		return ok(line, "is not there yet; `pgrelay run` makes it (%d of %d are taken)", f.Slots, f.MaxSlots)
	case st.Foreign && st.Plugin == "":
		return failure(line, fmt.Sprintf(otherName, name), "is somebody else's: a physical slot")
	case st.Foreign:
		return failure(line, fmt.Sprintf(otherName, name), "is somebody else's: of database %q with plugin %q", st.Database, st.Plugin)
	case st.Lost:
		return warning(line, "run: pgrelay run, which replaces it and looks for every pending row", "is lost (%s): WAL that it needs is gone", lostWhy(st))
	case st.Holder.PID != 0 && !st.Holder.OurStream():
		return failure(line, fmt.Sprintf("stop it, or run: SELECT pg_terminate_backend(%d)", st.Holder.PID), "is read by somebody else: %s", st.Holder)
	case budget > 0 && st.RetainedBytes > budget:
		return warning(line, "run: pgrelay run, which replaces it and looks for every pending row (no relay any more: pgrelay slot drop)",
			"holds back %s of WAL, more than max_retained_wal", bytes(st.RetainedBytes))
	}
	reader := "nobody reads it"
	if st.Holder.PID != 0 {
		reader = "read by " + st.Holder.String()
	}
	return ok(line, "lag %s, retained WAL %s, %s", bytes(st.LagBytes), bytes(st.RetainedBytes), reader)
}

func lostWhy(st replication.SlotState) string {
	if st.LostReason != "" {
		return st.LostReason
	}
	return "wal_status is lost"
}

// judgeKeepSize warns of a slot that would fill the disk once its relay is stopped for good.
func judgeKeepSize(keepSize string, temporary bool) Line {
	const name = "slot limit"
	switch {
	case temporary:
		return ok(name, "the slot is temporary and ends with its relay")
	case keepSize == "-1":
		return warning(name, "set replication.temporary: true, or run: ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf()",
			"max_slot_wal_keep_size is not set: a relay that is stopped for good leaves a slot that keeps WAL until the disk is full")
	}
	return ok(name, "max_slot_wal_keep_size is %s", keepSize)
}

func bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
