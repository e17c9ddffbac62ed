package main

import (
	"os"

	"pgrelay/internal/cli"
)

// version is set by the linker.
var version string

func main() { os.Exit(cli.Main(cli.Program{Version: version})) }
