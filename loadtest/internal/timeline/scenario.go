package timeline

import (
	"fmt"
	"time"

	"stock/loadtest/internal/history"
)

// Fault is the moment at which the fault of a scenario struck.
type Fault struct {
	After time.Duration // since the scenario began
	Text  string
}

// maxItems is the largest number of items of a scenario that get a window.
const maxItems = 3

// Scenario returns a window for each item of a fault scenario, which began at a time on the clock of the history. It
// has every request, without the prefix of its name, and the time from the fault until the next sale, or until the end,
// is shaded. The fault is nil if it did not strike.
func Scenario(h *history.History, began int64, prefix string, fault *Fault) (windows []Window) {
	for _, it := range byItem(h, true, prefix) {
		if len(windows) == maxItems {
			break
		}
		from, to := began, it.answered()
		shown := it.nearest(began, fault)
		if len(shown) < len(it.spans) {
			from, to = shown[0].start, shown[len(shown)-1].end
		}
		w := it.window(began, from, to, shown)
		w.Omitted = len(it.spans) - len(shown)
		w.Title = fmt.Sprintf("Item %d", it.id)
		if fault != nil && int64(fault.After) < w.To {
			end, sold := it.nextSale(began + int64(fault.After))
			w.Shaded = []Shade{{Start: int64(fault.After), End: end - began, Text: fault.Text, Sold: sold}}
		}
		windows = append(windows, w)
	}
	return windows
}

// end returns when the last section ends.
func (it *item) end() int64 {
	last := it.spans[0].end
	for _, s := range it.spans {
		last = max(last, s.end)
	}
	return last
}

// answered returns when the last request was answered.
func (it *item) answered() int64 {
	last := it.end()
	for _, s := range it.spans {
		last = max(last, s.op.ReceivedNS)
	}
	return last
}

// nearest returns up to MaxSections sections, of which most follow the fault.
func (it *item) nearest(began int64, fault *Fault) []*span {
	first := 0
	if fault != nil {
		for first < len(it.spans) && it.spans[first].end < began+int64(fault.After) {
			first++
		}
	}
	const earlier = MaxSections / 6
	first = max(0, min(first-earlier, len(it.spans)-MaxSections))
	return it.spans[first:min(first+MaxSections, len(it.spans))]
}

// nextSale returns when the first sale after a time was confirmed, or the end if nothing was sold any more.
func (it *item) nextSale(after int64) (next int64, sold bool) {
	for _, s := range it.spans {
		if s.op.Outcome != history.Sold || s.kind == PutBack {
			continue
		}
		if at := s.op.ReceivedNS; at > after && (!sold || at < next) {
			next, sold = at, true
		}
	}
	if !sold {
		next = it.answered()
	}
	return next, sold
}
