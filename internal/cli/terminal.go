package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// terminal is what an output can do. Zero is a file or a pipe: nothing is cut, wrapped or coloured.
type terminal struct {
	width int // in columns
	color bool
}

// usualWidth is taken for a terminal that doesn't know its own.
const usualWidth = 80

func terminalOf(w io.Writer, env func(string) (string, bool)) terminal {
	f, ok := w.(*os.File)
	if !ok {
		return terminal{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return terminal{}
	}
	t := terminal{width: int(size.Col), color: true}
	if t.width == 0 {
		t.width = usualWidth
	}
	if off, _ := env("NO_COLOR"); off != "" {
		t.color = false
	}
	if name, _ := env("TERM"); name == "dumb" {
		t.color = false
	}
	return t
}

// progress gives a function that tells whoever sits before standard error how many rows are done, and one that takes
// that away again.
func (a *app) progress() (tell func(rows int), end func()) {
	if terminalOf(a.stderr, a.env).width == 0 {
		return func(int) {}, func() {}
	}
	told := false
	tell = func(rows int) {
		told = true
		fmt.Fprintf(a.stderr, "\r%s rows so far", humanize.Comma(int64(rows)))
	}
	end = func() {
		if told {
			fmt.Fprint(a.stderr, "\r\x1b[K")
		}
	}
	return tell, end
}
