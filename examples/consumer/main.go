package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	queue := flag.String("queue", "", "the queue's URL")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatalf("loading the AWS configuration: %v", err) //nolint:gocritic // stop has nothing to undo
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatalf("connecting to PostgreSQL: %v", err)
	}
	defer pool.Close()
	c := &consumer{sqs: sqs.NewFromConfig(aws), queue: *queue, db: pool, effect: countGuests, timeout: effectTimeout}
	c.run(ctx)
}

// countGuests is the effect: a confirmed booking is a guest more in its room. What it doesn't know it leaves alone.
func countGuests(ctx context.Context, tx pgx.Tx, e event) error {
	if e.kind != "booking.confirmed" {
		return nil
	}
	var booking struct {
		Room string `json:"room"`
	}
	if err := json.Unmarshal([]byte(e.body), &booking); err != nil {
		return fmt.Errorf("reading the booking: %w", err)
	}
	_, err := tx.Exec(ctx, `INSERT INTO rooms (name, guests) VALUES ($1, 1)
		ON CONFLICT (name) DO UPDATE SET guests = rooms.guests + 1`, booking.Room)
	if err != nil {
		return fmt.Errorf("counting the guest: %w", err)
	}
	return nil
}
