package relay

// Table is one outbox table as the relay found it in the catalog. It is immutable
// and safe for concurrent use.
type Table struct {
	// Name is the qualified name, quoted where SQL needs it; it names the outbox in
	// claims, failures, logs and metrics.
	Name string
}
