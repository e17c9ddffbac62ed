// Package status reads how a relay is doing from the database: slot, leader and the
// states of the outboxes' rows. The command line prints it; a sampler turns it into
// metrics while a relay runs, leading or standing by.
package status
