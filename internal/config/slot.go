package config

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// SlotName is the replication slot for a database: the configured one or
// pgrelay_<database>. Slots are cluster-wide and take only a-z, 0-9 and _, so a name in
// which something had to be replaced or cut gets a hash of the whole: two databases
// never share a slot.
func (c *Config) SlotName(database string) string {
	if c.Replication.Slot != "" {
		return c.Replication.Slot
	}
	const prefix, longest = "pgrelay_", 63
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, database)
	if clean == database && len(prefix+clean) <= longest {
		return prefix + clean
	}
	hash := fmt.Sprintf("_%x", sha256.Sum256([]byte(database)))[:9]
	return prefix + clean[:min(len(clean), longest-len(prefix)-len(hash))] + hash
}
