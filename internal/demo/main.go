package main

import (
	_ "embed"

	"pgrelay/internal/stage"
)

const queueName = "bookings.fifo"

//go:embed pgrelay.yaml
var configuration string

func main() { stage.Main(play()) }

// demo is a stage with the memory of what was committed on it.
type demo struct {
	*stage.Stage
	ledger ledger
}

func play() stage.Play {
	return stage.Play{Name: "demo", Configuration: configuration, Schema: schema, Queues: []string{queueName}, Acts: acts}
}
