package timeline

import (
	"fmt"
	"slices"

	"stock/loadtest/internal/history"
)

// Limits of a window.
const (
	// perWindow is how many sections are drawn around a finding.
	perWindow = 24
	// MaxSections is the largest number of sections in the window of a scenario.
	MaxSections = 40
)

// Around returns the windows around the first finding of each kind. A history without a finding has one window from its
// middle.
func Around(h *history.History) (windows []Window) {
	items := byItem(h, false, "")
	shown := map[string]bool{} // kinds of findings
	for _, it := range items {
		for _, f := range it.findings {
			if shown[f.kind] {
				continue
			}
			w := it.around(f.spans...)
			w.Title = fmt.Sprintf("Around the first %s of item %d", titles[f.kind], it.id)
			for _, found := range w.Findings {
				shown[found.Kind] = true
			}
			windows = append(windows, w)
		}
	}
	if windows == nil && len(items) > 0 {
		busiest := slices.MaxFunc(items, func(a, b *item) int { return len(a.spans) - len(b.spans) })
		middle := busiest.around(busiest.spans[len(busiest.spans)/2])
		middle.Title = fmt.Sprintf("From the middle of the run, item %d", busiest.id)
		windows = []Window{middle}
	}
	return windows
}

// around returns a window of the sections that begin next to some, which are in it in any case.
func (it *item) around(must ...*span) Window {
	middle := slices.Index(it.spans, must[0])
	first := max(0, min(middle-perWindow/2, len(it.spans)-perWindow))
	shown := slices.Clone(it.spans[first:min(first+perWindow, len(it.spans))])
	for _, s := range must {
		if !slices.Contains(shown, s) {
			shown = append(shown, s)
		}
	}
	sortByStart(shown)
	from, to := shown[0].start, shown[0].end
	for _, s := range shown {
		to = max(to, s.end)
	}
	return it.window(from, from, to, shown)
}

var titles = map[string]string{
	Overlap: "overlap", string(Lost): "lost update", string(Twice): "deduction that was made twice",
	string(Oversold): "sale without stock",
}

// window returns a window of the given sections.
func (it *item) window(origin, from, to int64, spans []*span) Window {
	w := Window{
		Item: it.id, Round: it.round, Origin: origin, From: from - origin, To: max(to, from+1) - origin, Of: len(it.spans),
		Requests: it.requests, Allowed: it.allowed, Lanes: arrange(spans), Sections: make([]Section, len(spans)),
	}
	at := map[*span]int{}
	for i, s := range spans {
		w.Sections[i] = s.section(origin)
		at[s] = i
	}
	for _, f := range it.findings {
		found := Finding{Kind: f.kind, Text: f.text, Start: f.spans[0].start - origin, End: f.spans[0].end - origin}
		for _, s := range f.spans {
			if i, inside := at[s]; inside {
				found.Sections = append(found.Sections, i)
			}
		}
		if f.kind == Overlap {
			a, b := f.spans[0], f.spans[1]
			found.Start, found.End = max(a.start, b.start)-origin, min(a.end, b.end)-origin
		}
		if len(found.Sections) == len(f.spans) && found.Start >= w.From { // otherwise it is in another window
			w.Findings = append(w.Findings, found)
		}
	}
	return w
}

// section returns what a window says about a span.
func (s *span) section(origin int64) Section {
	sec := Section{
		Start: s.start - origin, End: s.end - origin, Lane: s.lane, Kind: s.kind, Request: s.name,
		Token: s.op.Token, Overlap: s.overlap, Flaw: s.flaw,
	}
	before, after := s.op.Remaining+s.op.Count, s.op.Remaining
	if s.kind == PutBack {
		before = s.op.Remaining - s.op.Count
	}
	known := !s.op.OmitsRemaining && (s.kind != PutBack || s.op.Remaining > 0)
	switch {
	case s.op.Outcome != history.Sold:
		sec.Outcome, sec.Count = string(s.op.Outcome), s.op.Count
	case known:
		sec.Before, sec.After = &before, &after
	default:
		sec.Count = s.op.Count
	}
	return sec
}
