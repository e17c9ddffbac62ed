package e2e_test

import (
	"testing"

	"pgrelay/internal/pgtest"
)

func TestADatabaseThatIsReadOnlyByDefaultIsMigratedAndRelayed(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.New(t), nil) // the producer's session is older than the setting
	w.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	w.done("migrate", "up")
	p := w.start()
	w.insert("q", 3)
	w.arrive(standardQueue, 3)
	w.settled(0)
	p.stop()
}
