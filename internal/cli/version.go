package cli

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  pgrelay version --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			text := versionText(a.Version)
			return a.print(asJSON, map[string]string{"version": text}, func(p *page) { p.line("pgrelay %s", text) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func versionText(version string) string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
