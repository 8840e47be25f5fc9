package console

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"stock/loadtest/internal/history"
)

// watcher notes the answers of a cell. Each client has a place of its own, so that clients do not wait for each other:
// watching must not change what is measured.
type watcher struct {
	header  history.Run
	began   time.Time
	clients []watched
}

// watched is what is known of one client.
type watched struct {
	mu       sync.Mutex
	answered int64
	sold     int64 // units
	sections [recent]span
	next     int // number of the next section
}

// recent is how many sections of a client are kept. A client that has more of them between two samples overwrites the
// older ones; enough remain to draw.
const recent = 8

// span is a critical section.
type span struct {
	replica           string
	item              int64
	enteredNS, leftNS int64
}

func newWatcher(header history.Run, users int) *watcher {
	return &watcher{header: header, began: time.Now(), clients: make([]watched, users)}
}

// watch is called with each answer.
func (w *watcher) watch(op *history.Op) {
	if op.Client < 0 || op.Client >= len(w.clients) {
		return
	}
	c := &w.clients[op.Client]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered++
	if op.Outcome != history.Sold {
		return
	}
	c.sold += op.Count
	for _, line := range op.Lines {
		c.sold += line.Count
	}
	if op.LeftNS > op.EnteredNS {
		c.sections[c.next%recent] = span{op.Replica, op.GoodsID, op.EnteredNS, op.LeftNS}
		c.next++
	}
}

// sums returns what all clients have been answered, and their sections that ended after a time.
func (w *watcher) sums(afterNS int64) (answered, sold int64, sections []span) {
	for i := range w.clients {
		c := &w.clients[i]
		c.mu.Lock()
		answered += c.answered
		sold += c.sold
		for _, s := range c.sections[:min(c.next, recent)] {
			if s.leftNS > afterNS {
				sections = append(sections, s)
			}
		}
		c.mu.Unlock()
	}
	slices.SortFunc(sections, func(a, b span) int { return cmp.Compare(a.enteredNS, b.enteredNS) })
	return answered, sold, sections
}

// together returns the most sections of one item that are open at any time. sections must be sorted by enteredNS.
func together(sections []span) (most int) {
	open := map[int64][]int64{} // when those of an item end
	for _, s := range sections {
		still := slices.DeleteFunc(open[s.item], func(end int64) bool { return end <= s.enteredNS })
		open[s.item] = append(still, s.leftNS)
		most = max(most, len(open[s.item]))
	}
	return most
}

// minInterval is the least time between two samples, s. A rate over less time would say little.
const minInterval = float64(sampleInterval) / 2 / float64(time.Second)

// add adds a sample, computes its rate, and returns its Inside. It replaces samples that were taken too shortly before
// it, and at the end of a cell, those that were taken after the last answer. Inside is then the most of them all.
func (l *CellLive) add(s Sample) (inside int) {
	kept := len(l.Samples)
	for ; kept > 0; kept-- {
		last := l.Samples[kept-1]
		if s.AtS-last.AtS >= minInterval && last.AtS >= minInterval {
			break
		}
		s.Inside = max(s.Inside, last.Inside)
	}
	l.Samples = l.Samples[:kept]
	s.PerS = s.rate(l.Samples)
	l.Samples, l.Most = append(l.Samples, s), max(l.Most, s.Inside)
	l.Samples = l.Samples[max(0, len(l.Samples)-maxSamples):]
	return s.Inside
}

// rate returns the units sold in a second since the last of the samples before, or since the beginning of the cell.
func (s Sample) rate(before []Sample) float64 {
	var last Sample
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	if s.AtS <= last.AtS {
		return 0
	}
	return float64(s.Sold-last.Sold) / (s.AtS - last.AtS)
}

// shownSections is how many sections the page draws.
const shownSections = 40

// forPage returns the sections that were entered last, with times relative to the last end.
func forPage(sections []span) []Section {
	sections = sections[max(0, len(sections)-shownSections):]
	last := int64(0)
	for _, s := range sections {
		last = max(last, s.leftNS)
	}
	shown := []Section{}
	for _, s := range sections {
		ms := func(ns int64) float64 { return float64(ns-last) / 1e6 }
		shown = append(shown, Section{s.replica, s.item, ms(s.enteredNS), ms(s.leftNS)})
	}
	return shown
}
