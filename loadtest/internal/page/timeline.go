package page

import (
	"io"

	"stock/loadtest/internal/timeline"
)

// Timeline is a page of the critical sections of one history.
type Timeline struct {
	Title    string
	Lead     string
	Evidence []string // of the judge
	Windows  []timeline.Window
}

// WriteTimeline writes the page.
func WriteTimeline(w io.Writer, t Timeline) error {
	main, err := render("timeline", t)
	if err != nil {
		return err
	}
	return Frame{
		Title: t.Title, Lead: t.Lead, Main: main, Data: []Data{{ID: "windows", Value: t.Windows}},
		Scripts: []string{"timeline.js", "timeline-page.js"},
	}.Write(w)
}
