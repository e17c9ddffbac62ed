package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// page is what a command says to a person, laid out for the terminal that it goes to.
type page struct {
	strings.Builder
	term terminal
}

// style is how a cell looks where there are colours.
type style string

const (
	plain  style = ""
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	faint  style = "2"
)

// cell is one value of a table or a list.
type cell struct {
	text  string
	style style
	whole bool // never cut nor wrapped: somebody may copy it
}

// cells makes a row of values; one that is a cell stays as it is.
func cells(values ...any) []cell {
	row := make([]cell, len(values))
	for i, v := range values {
		c, ok := v.(cell)
		if !ok {
			c = cell{text: fmt.Sprint(v)}
		}
		c.text = printable(c.text)
		row[i] = c
	}
	return row
}

// printable quotes what would not stay on its line, or would do something to a terminal.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text)
	}
	return text
}

// line writes a line as it is.
func (p *page) line(format string, args ...any) {
	fmt.Fprintf(p, format+"\n", args...)
}

const (
	gap       = 2  // between columns
	narrowest = 6  // what a column of a table is cut to at most
	readable  = 20 // what the text of a list is wrapped to at most
)

// table writes rows in columns. Where they are too wide for the terminal the widest are cut.
func (p *page) table(rows [][]cell) {
	widths := widths(rows)
	for over := total(widths) - p.term.width; p.term.width > 0 && over > 0; over-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		p.row(row, widths)
	}
}

// list writes rows in columns, of which the last is text: it goes on below itself where the terminal is too narrow.
func (p *page) list(rows [][]cell) {
	widths := widths(rows)
	last := len(widths) - 1
	if p.term.width > 0 {
		widths[last] = max(readable, widths[last]-max(total(widths)-p.term.width, 0))
	}
	for _, row := range rows {
		if len(row) <= last || row[last].whole {
			p.row(row, widths)
			continue
		}
		for i, text := range wrap(row[last].text, widths[last]) {
			part := append(make([]cell, 0, len(row)), row...)
			if i > 0 {
				clear(part[:cap(part)])
			}
			part[last].text = text
			p.row(part, widths)
		}
	}
}

func (p *page) row(row []cell, widths []int) {
	var line strings.Builder
	blanks := 0
	for i, c := range row {
		text := c.text
		if !c.whole {
			text = cut(text, widths[i])
		}
		line.WriteString(strings.Repeat(" ", blanks))
		if p.term.color && c.style != plain {
			fmt.Fprintf(&line, "\x1b[%sm%s\x1b[0m", c.style, text)
		} else {
			line.WriteString(text)
		}
		blanks = max(widths[i]-utf8.RuneCountInString(text), 0) + gap
	}
	p.line("%s", strings.TrimRight(line.String(), " "))
}

// widths are those of the columns. What is never cut makes none wider.
func widths(rows [][]cell) []int {
	var all []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(all) {
				all = append(all, 0)
			}
			if !c.whole {
				all[i] = max(all[i], utf8.RuneCountInString(c.text))
			}
		}
	}
	return all
}

func total(widths []int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// wrap breaks text between words; a longer word is broken where the line ends.
func wrap(text string, width int) []string {
	if utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	var line []rune
	for word := range strings.FieldsSeq(text) {
		if len(line) > 0 && len(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, []rune(word)...)
		for len(line) > width {
			lines, line = append(lines, string(line[:width])), line[width:]
		}
	}
	return append(lines, string(line))
}

// ago is how long ago something was, or how long it still takes.
func ago(t time.Time) string { return humanize.Time(t) }

// moment is a time in the zone of whoever reads it.
func moment(t time.Time) string {
	return fmt.Sprintf("%s (%s)", t.Local().Format(time.DateTime), ago(t))
}
