package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"pgrelay/poller"
)

// hangups delivers SIGHUP, which would end the process, until stop is called.
func hangups() (c <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// reload switches the scheduler as the configuration file says at each SIGHUP, until ctx ends. A file that can't be used changes nothing.
func (a *app) reload(ctx context.Context, hangups <-chan os.Signal, s *poller.Scheduler, log zerolog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		cfg, _, err := a.load()
		switch {
		case err != nil:
			log.Error().Err(err).Msg("SIGHUP: the configuration can't be used; nothing is changed")
		case !s.Enable(cfg.Scheduler.Enabled):
			log.Info().Bool("enabled", cfg.Scheduler.Enabled).Msg("SIGHUP: scheduler.enabled is as it was, and nothing else is taken without a restart")
		case cfg.Scheduler.Enabled:
			log.Info().Msg("scheduler switched on")
		default:
			log.Info().Msg("scheduler switched off; what is in the outboxes still goes out")
		}
	}
}
