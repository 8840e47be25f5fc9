package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// item is what can be drawn of one item.
type item struct {
	id       int64
	round    int
	requests bool // no critical section is on record
	allowed  bool // overlaps are no fault
	spans    []*span
	findings []finding
}

// span is a section on the clock of the history.
type span struct {
	op         history.Op
	name       string
	kind       Kind
	start, end int64
	replica    string
	lane       int
	overlap    bool
	flaw       Flaw
}

// finding is the first of its kind.
type finding struct {
	kind  string
	text  string
	spans []*span
}

// byItem sorts a history by item. It draws only sales, unless everything is asked for. Requests are named without the
// prefix.
func byItem(h *history.History, everything bool, prefix string) (items []*item) {
	for _, sales := range verify.SalesByItem(h) {
		it := &item{id: sales.Item, requests: !slices.ContainsFunc(sales.Ops, verify.Entered)}
		if h.Run.Scenario == "" {
			it.round = h.Run.Round
		}
		of := make([]*span, len(sales.Ops))
		for i, op := range sales.Ops {
			s := newSpan(op, prefix)
			if sales.Foreign[op.Replica] {
				s.asRequest()
			}
			of[i] = s
			if s.kind == Inside || it.requests || everything {
				it.spans = append(it.spans, s)
			}
		}
		it.find(h.Run, sales, of)
		if everything {
			it.addOthers(h, prefix)
		}
		sortByStart(it.spans)
		if len(it.spans) > 0 {
			items = append(items, it)
		}
	}
	return items
}

func sortByStart(spans []*span) {
	slices.SortStableFunc(spans, func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
}

func newSpan(op history.Op, prefix string) *span {
	name := cmp.Or(op.RequestID, op.Name)
	if name == "" {
		name = fmt.Sprintf("client %d", op.Client)
	}
	name = strings.TrimPrefix(name, prefix)
	s := &span{op: op, name: name, replica: op.Replica, start: op.EnteredNS, end: op.LeftNS}
	if !verify.Entered(op) {
		s.asRequest()
	}
	return s
}

// asRequest makes it the time from sending to the answer.
func (s *span) asRequest() {
	s.kind, s.start, s.end = Request, s.op.SentNS, s.op.ReceivedNS
	if s.op.Kind == history.Restock {
		s.kind, s.replica = PutBack, Restocks
	}
	s.replica = cmp.Or(s.replica, NoAnswer)
}

// addOthers adds the requests that sold nothing, and the restocks.
func (it *item) addOthers(h *history.History, prefix string) {
	for _, op := range h.Ops {
		if op.Kind != history.Restock && (!op.Sells() || op.Outcome == history.Sold) {
			continue
		}
		for _, line := range op.Lines {
			if line.GoodsID == it.id {
				op.GoodsID, op.Count = line.GoodsID, line.Count
			}
		}
		if op.GoodsID == it.id {
			op.EnteredNS = 0
			it.spans = append(it.spans, newSpan(op, prefix))
		}
	}
}

// find marks what is wrong, and keeps the first finding of each kind.
func (it *item) find(run history.Run, sales verify.Sales, of []*span) {
	mark := func(kind string, pairs []verify.Pair, set func(*span)) {
		for i, pair := range pairs {
			a, b := of[pair[0]], of[pair[1]]
			set(a)
			set(b)
			if i == 0 {
				it.findings = append(it.findings, finding{kind, describe(kind, a, b), []*span{a, b}})
			}
		}
	}
	it.allowed = !run.Exclusive && len(sales.SameStock) == 0 && !it.requests
	mark(Overlap, sales.Overlaps, func(s *span) { s.overlap = true })
	if it.allowed {
		it.findings = nil
	}
	mark(string(Lost), sales.SameStock, func(s *span) { s.flaw = Lost })
	mark(string(Twice), sales.Twice, func(s *span) { s.flaw = Twice })
	for _, s := range of {
		if s.op.OmitsRemaining || s.op.Remaining >= 0 {
			continue
		}
		if s.flaw = Oversold; !it.found(string(Oversold)) {
			text := fmt.Sprintf("%s took %d and was told that %d remain.", s.name, s.op.Count, s.op.Remaining)
			it.findings = append(it.findings, finding{string(Oversold), text, []*span{s}})
		}
	}
}

func (it *item) found(kind string) bool {
	return slices.ContainsFunc(it.findings, func(f finding) bool { return f.kind == kind })
}

// describe says what two sales have done.
func describe(kind string, a, b *span) string {
	x, y := a.name, b.name
	switch kind {
	case Overlap:
		return fmt.Sprintf("%s (%s) and %s (%s) were inside at the same time for %s.", x, a.replica, y, b.replica,
			length(min(a.end, b.end)-max(a.start, b.start)))
	case string(Lost):
		return fmt.Sprintf("%s and %s both left %d: one of the two sales is lost.", x, y, b.op.Remaining)
	}
	return fmt.Sprintf("The deduction of %s was made twice.", x)
}

// length formats nanoseconds with three digits.
func length(ns int64) string {
	unit := time.Duration(1)
	for ns/int64(unit) >= 1000 {
		unit *= 10
	}
	text := time.Duration(ns).Round(unit).String()
	number := strings.TrimRight(text, "nµms")
	return number + " " + text[len(number):]
}
