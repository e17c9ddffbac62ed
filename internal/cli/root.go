package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

const rootLong = `pgrelay sends rows of outbox tables in PostgreSQL to Amazon SQS, and as mail.

From nothing to a first message:
  1. Write pgrelay.yaml: the database's URL, a destination, an outbox. README.md
     has one to begin with, docs/configuration.md has every key.
  2. pgrelay migrate up   makes the schema pgrelay with a table outbox_events
  3. pgrelay check        says what is missing, and what to run
  4. pgrelay run          relays until it is stopped
  5. Insert a row, and it is a message:
       INSERT INTO pgrelay.outbox_events (event_type, payload)
       VALUES ('hello', '{"n": 1}');

When something is wrong:
  nothing arrives, or it doesn't start   pgrelay check
  it is late, or rows pile up            pgrelay status
  one row doesn't arrive                 pgrelay explain
  rows are dead                          pgrelay dead list
  nobody knows whether mail arrived      pgrelay sends list --uncertain
  consumers lost messages                pgrelay republish
  the log says something                 docs/operating.md has each line
  an alert fires                         docs/runbook.md has each one`

const rootExample = `  pgrelay check --config pgrelay.yaml
  pgrelay run
  pgrelay status --json
  pgrelay help dead retry`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "pgrelay",
		Short:         "Relay transactional outbox tables of PostgreSQL to Amazon SQS",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unknown command %q; `pgrelay --help` lists them", args[0])}
			}
			return nil
		},
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; `%s --help` shows how", err, cmd.CommandPath())}
	})
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.PersistentFlags().StringVarP(&a.configFile, "config", "c", "pgrelay.yaml", "configuration file")
	if err := root.MarkPersistentFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // a flag that is not there
	}
	group(root, "Relay:", newMigrate(a), newCheck(a), newRun(a))
	group(root, "Look:", newStatus(a), newRender(a), newExplain(a))
	group(root, "Mend:", newDead(a), newSends(a), newRepublish(a), newSlot(a))
	root.AddCommand(newVersion(a))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	return root
}

// group adds commands under a title of the help.
func group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
