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

// printer writes text for a terminal. Errors are returned by Flush.
type printer struct {
	*bufio.Writer
	colour bool
}

func newPrinter(w io.Writer, colour bool) printer {
	return printer{Writer: bufio.NewWriter(w), colour: colour}
}

func (out printer) paint(style style, text string) string {
	if !out.colour || style == plain {
		return text
	}
	return string(style) + text + string(reset)
}

// line writes a line in one style.
func (out printer) line(style style, text string) {
	out.WriteString(out.paint(style, text))
	out.WriteByte('\n')
}

// tableCell is one cell of a table.
type tableCell struct {
	text  string
	style style
}

// table aligns cells in columns. Package text/tabwriter would count escape sequences as width.
type table struct {
	columns []tableColumn
	rows    [][]tableCell
}

type tableColumn struct {
	head string
	left bool // aligned left
}

func (t *table) write(out printer) {
	widths := make([]int, len(t.columns))
	head := make([]tableCell, len(t.columns))
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.head)
		head[i] = tableCell{text: c.head, style: faint}
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	t.writeRow(out, widths, head)
	for _, row := range t.rows {
		t.writeRow(out, widths, row)
	}
}

// writeRow leaves no blanks at the end of the line.
func (t *table) writeRow(out printer, widths []int, row []tableCell) {
	end := len(row)
	for end > 0 && row[end-1].text == "" {
		end--
	}
	for i, c := range row[:end] {
		if i > 0 {
			out.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
		if !t.columns[i].left {
			out.WriteString(pad)
		}
		out.WriteString(out.paint(c.style, c.text))
		if t.columns[i].left && i < end-1 {
			out.WriteString(pad)
		}
	}
	out.WriteByte('\n')
}
