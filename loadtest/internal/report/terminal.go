package report

import (
	"bufio"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Terminal reports whether w is a terminal that understands escape sequences.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colour reports whether output to w should be coloured: on a terminal, unless NO_COLOR is set (no-color.org).
func Colour(w io.Writer) bool { return Terminal(w) && os.Getenv("NO_COLOR") == "" }

// style is an ANSI escape sequence; empty for plain.
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	faint  style = "\x1b[2m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	reset  style = "\x1b[0m"
)

// screen writes text for a terminal. Errors are returned by Flush.
type screen struct {
	*bufio.Writer
	colour bool
}

func newScreen(w io.Writer, colour bool) screen {
	return screen{Writer: bufio.NewWriter(w), colour: colour}
}

func (s screen) paint(style style, text string) string {
	if !s.colour || style == plain {
		return text
	}
	return string(style) + text + string(reset)
}

// line writes a line in one style.
func (s screen) line(style style, text string) {
	s.WriteString(s.paint(style, text))
	s.WriteByte('\n')
}

// cell is one cell of a table.
type cell struct {
	text  string
	style style
}

// table aligns cells in columns. Package text/tabwriter would count escape sequences as width.
type table struct {
	columns []tableColumn
	rows    [][]cell
}

type tableColumn struct {
	head string
	left bool // aligned left
}

func (t *table) write(s screen) {
	widths := make([]int, len(t.columns))
	head := make([]cell, len(t.columns))
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.head)
		head[i] = cell{text: c.head, style: faint}
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	t.writeRow(s, widths, head)
	for _, row := range t.rows {
		t.writeRow(s, widths, row)
	}
}

// writeRow leaves no blanks at the end of the line.
func (t *table) writeRow(s screen, widths []int, row []cell) {
	end := len(row)
	for end > 0 && row[end-1].text == "" {
		end--
	}
	for i, c := range row[:end] {
		if i > 0 {
			s.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
		if !t.columns[i].left {
			s.WriteString(pad)
		}
		s.WriteString(s.paint(c.style, c.text))
		if t.columns[i].left && i < end-1 {
			s.WriteString(pad)
		}
	}
	s.WriteByte('\n')
}
