package main

import (
	"context"
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
	p := stage.Play{Name: "demo", Configuration: configuration, Schema: schema, Queues: []string{queueName}}
	var d demo
	for _, step := range steps {
		p.Acts = append(p.Acts, stage.Act{Title: step.title, Play: func(ctx context.Context, s *stage.Stage) error {
			d.Stage = s
			return step.play(ctx, &d)
		}})
	}
	return p
}
