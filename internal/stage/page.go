package stage

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Width is how long a line may be.
const Width = 80

// Page writes for a person whose terminal has 80 columns.
type Page struct{ w io.Writer }

func (p *Page) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // a reader who has gone ends the demo by SIGPIPE
}

// heading begins an act.
func (p *Page) heading(n int, title string) {
	line := fmt.Sprintf("── %d. %s ", n, title)
	p.printf("\n%s%s\n", line, strings.Repeat("─", max(0, Width-len([]rune(line)))))
}

// Text writes a paragraph.
func (p *Page) Text(format string, args ...any) {
	for _, line := range fold(fmt.Sprintf(format, args...), Width, "") {
		p.printf("%s\n", line)
	}
}

// SQL writes statements as one types them into psql.
func (p *Page) SQL(statements ...string) {
	for _, s := range statements {
		p.printf("  => %s;\n", strings.ReplaceAll(s, "\n", "\n     "))
	}
}

// Command writes a command line as one types it into a shell.
func (p *Page) Command(line string) { p.printf("  $ %s\n", line) }

// Output writes what a command printed.
func (p *Page) Output(text string) {
	for _, line := range layOut(strings.Split(strings.TrimRight(text, "\n"), "\n"), Width-4) {
		p.printf("%s\n", strings.TrimRight("    "+line, " "))
	}
}

const indent = "        "

// layOut breaks lines that are longer than width: a table between two columns, so that
// its right part stands below its left one, and anything else between words.
func layOut(lines []string, width int) []string {
	var out []string
	for len(lines) > 0 {
		n := slices.Index(lines, "") + 1 // up to an empty line
		if n == 0 {
			n = len(lines)
		}
		block := lines[:n]
		lines = lines[n:]
		cut := gap(block, width)
		if cut == 0 {
			for _, line := range block {
				out = append(out, fold(line, width, indent)...)
			}
			continue
		}
		var right []string
		for _, line := range block {
			runes := []rune(line)
			at := min(cut, len(runes))
			out = append(out, string(runes[:at]))
			right = append(right, indent+string(runes[at:]))
		}
		out = append(out, layOut(right, width)...)
	}
	return out
}

// gap is the last place within width where all lines of a table have two blanks in
// front; 0 where they fit, or are no table.
func gap(lines []string, width int) int {
	longest := 0
	for _, line := range lines {
		longest = max(longest, len([]rune(line)))
	}
	if longest <= width || len(lines) < 2 {
		return 0
	}
	for cut := width; cut > len(indent)+2; cut-- {
		if !slices.ContainsFunc(lines, func(line string) bool {
			runes := []rune(line)
			return line != "" && (len(runes) <= cut || string(runes[cut-2:cut]) != "  " || runes[cut] == ' ')
		}) {
			return cut
		}
	}
	return 0
}

// fold breaks a line between words, before the width; what follows is indented.
func fold(line string, width int, indent string) []string {
	var lines []string
	for len([]rune(line)) > width {
		head := string([]rune(line)[:width+1])
		cut := strings.LastIndexByte(head, ' ')
		if strings.TrimSpace(head[:max(cut, 0)]) == "" {
			break // a word longer than the line stays whole
		}
		lines = append(lines, strings.TrimRight(line[:cut], " "))
		line = indent + strings.TrimLeft(line[cut:], " ")
	}
	return append(lines, line)
}
