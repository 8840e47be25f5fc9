package report

import (
	"bufio"
	"io"
	"os"
	"slices"
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

// title begins a report.
func (out printer) title(text string) { out.WriteString(out.paint(bold, "# "+text) + "\n") }

// section begins a part of the report.
func (out printer) section(heading string) {
	out.WriteString("\n" + out.paint(bold, "## "+heading) + "\n\n")
}

// item writes a line of a list.
func (out printer) item(style style, text string) {
	out.WriteString("- " + out.paint(style, text) + "\n")
}

// code writes lines as they are, below an item.
func (out printer) code(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		out.WriteString("      " + strings.TrimSpace(line) + "\n")
	}
}

// paragraph writes a text after something else.
func (out printer) paragraph(text string) {
	out.WriteString("\n" + text + "\n")
}

// tableCell is one cell of a table.
type tableCell struct {
	text  string
	style style
}

// table is a table of Markdown with aligned columns. Package text/tabwriter would count escape sequences as width.
type table struct {
	columns []tableColumn
	rows    [][]tableCell
}

type tableColumn struct {
	head   string
	number bool // aligned right
}

func (t *table) write(out printer) {
	head, rule := make([]tableCell, len(t.columns)), make([]tableCell, len(t.columns))
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		head[i], widths[i] = tableCell{text: c.head, style: faint}, max(3, utf8.RuneCountInString(c.head))
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
		rule[i].text = strings.Repeat("-", widths[i])
		if c.number {
			rule[i].text = rule[i].text[1:] + ":"
		}
	}
	for _, row := range slices.Concat([][]tableCell{head, rule}, t.rows) {
		for i, c := range row {
			text, pad := out.paint(c.style, c.text), strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if t.columns[i].number {
				text, pad = pad, text
			}
			out.WriteString("| " + text + pad + " ")
		}
		out.WriteString("|\n")
	}
}
