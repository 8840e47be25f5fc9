package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"stock/loadtest/internal/history"
)

// Limits of a window.
const (
	// perWindow is how many sections are drawn around a finding, if there are no more at that time.
	perWindow = 24
	// perCrowd is how many are drawn if there are more than that: they are open at the same time, in a lane each.
	perCrowd = 16
	// MaxSections is the largest number of sections in the window of a story.
	MaxSections = 40
	// maxGrowth is how much longer than its finding a window may be. Otherwise its sections would be too thin to see.
	maxGrowth = 12
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
			w := it.around(f)
			for _, found := range w.Findings {
				shown[found.Kind] = true
			}
			windows = append(windows, w)
		}
	}
	if windows == nil && len(items) > 0 {
		busiest := slices.MaxFunc(items, func(a, b *item) int { return len(a.spans) - len(b.spans) })
		middle := busiest.around(finding{spans: busiest.spans[len(busiest.spans)/2:][:1]})
		middle.Title = fmt.Sprintf("From the middle of the run, item %d", busiest.id)
		windows = []Window{middle}
	}
	return windows
}

// around returns a window around a finding, or around what has no kind. It grows to both sides, section by section,
// until it is full.
func (it *item) around(f finding) Window {
	from, to := f.spans[0].start, f.spans[0].end
	for _, s := range f.spans {
		from, to = min(from, s.start), max(to, s.end)
	}
	longest := maxGrowth * (to - from)
	if f.kind == "" {
		longest = math.MaxInt64
	}
	grow := func(left, right int64) bool {
		if right-left > longest || len(it.during(left, right)) > perWindow {
			return false
		}
		from, to = left, right
		return true
	}
	for more := true; more; {
		before, after := it.beside(from, to)
		more = before < from && grow(before, to)
		more = after > to && grow(from, after) || more
	}
	w := it.cut(from, to, f.spans)
	w.Title = fmt.Sprintf("Around the first %s of item %d", titles[f.kind], it.id)
	return w
}

var titles = map[string]string{
	Overlap: "overlap", string(Lost): "lost update", string(Twice): "deduction that was made twice",
	string(Oversold): "sale without stock",
}

// beside returns when the last section that began before from did so, and when the first that ended after to did: from
// and to if there is none.
func (it *item) beside(from, to int64) (before, after int64) {
	before, after = from, to
	for _, s := range it.spans {
		if s.start < from && (before == from || s.start > before) {
			before = s.start
		}
		if s.end > to && (after == to || s.end < after) {
			after = s.end
		}
	}
	return before, after
}

// during returns the sections that are open at some time between from and to.
func (it *item) during(from, to int64) (found []*span) {
	for _, s := range it.spans {
		if s.start <= to && s.end >= from {
			found = append(found, s)
		}
	}
	return found
}

// cut returns a window of the sections between from and to. If there are too many, it keeps those that must be in it,
// and the ones that begin nearest to the first of them.
func (it *item) cut(from, to int64, must []*span) Window {
	found := it.during(from, to)
	omitted := 0
	if len(found) > perWindow {
		distance := func(s *span) int64 {
			if slices.Contains(must, s) {
				return -1
			}
			return max(s.start-must[0].start, must[0].start-s.start)
		}
		slices.SortStableFunc(found, func(a, b *span) int { return cmp.Compare(distance(a), distance(b)) })
		omitted = len(found) - perCrowd
		found = found[:perCrowd]
		sortByStart(found)
	}
	w := it.window(from, from, to, found)
	w.Omitted = omitted
	return w
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
		Client: s.op.Client, Token: s.op.Token, Overlap: s.overlap, Flaw: s.flaw,
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
