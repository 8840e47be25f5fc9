package verify_test

import (
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// orders is a shop that takes orders of up to 4 lines and sells out.
func orders(seed uint64) shop {
	return shop{seed: seed, users: 10, requests: 300, goods: 8, stock: 120, counts: 3, exclusive: true, lines: 4}
}

// withRetries lets clients send requests again, at a service that remembers and keeps a ledger.
func withRetries(s shop) shop {
	s.retries = 0.3
	return s
}

// findOrder finds an order that was sent once.
func findOrder(h *history.History, outcome history.Outcome, lines int) *history.Op {
	sent := map[string]int{}
	for _, op := range h.Ops {
		sent[op.Name]++
	}
	return find(h, func(op history.Op) bool {
		return op.Outcome == outcome && len(op.Lines) == lines && sent[op.Name] == 1
	})
}

// next finds the order that enters the critical section of one of the items next.
func next(h *history.History, after *history.Op) (found *history.Op) {
	for i := range h.Ops {
		op := &h.Ops[i]
		shares := slices.ContainsFunc(op.Lines, func(l history.Line) bool { return l.GoodsID == after.Lines[0].GoodsID })
		if shares && op.EnteredNS > after.LeftNS && (found == nil || op.EnteredNS < found.EnteredNS) {
			found = op
		}
	}
	return found
}

// short finds the line because of which an order was refused.
func short(op *history.Op) int {
	return slices.IndexFunc(op.Lines, func(l history.Line) bool { return l.Short })
}

// undoLine undoes a line of an order: every later buyer of the item, and the oracle, see more units.
func undoLine(h *history.History, undone history.Line) {
	for _, op := range h.Ops {
		for i := range op.Lines {
			if l := &op.Lines[i]; l.GoodsID == undone.GoodsID && op.Outcome == history.Sold && l.Remaining < undone.Remaining {
				l.Remaining += undone.Count
			}
		}
	}
	h.End.Final[undone.GoodsID] += undone.Count
}

// strikeLine removes the first line of an order from the ledger.
func strikeLine(h *history.History, op *history.Op) {
	h.Ledger = slices.DeleteFunc(h.Ledger, func(e history.Entry) bool {
		return e.Key == op.Name && e.GoodsID == op.Lines[0].GoodsID
	})
}

func TestPlantedBugsOfOrdersAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		shop  shop
		plant func(h *history.History)
		says  string // empty: correct
	}{
		{"a line of a sold order that was not deducted", orders(2), func(h *history.History) {
			line := findOrder(h, history.Sold, 3).Lines[2]
			h.End.Final[line.GoodsID] += line.Count
		}, "units sold but still in stock"},
		{"a line of a refused order that was deducted", orders(3), func(h *history.History) {
			op := findOrder(h, history.SoldOut, 2)
			line := op.Lines[1-short(op)]
			h.End.Final[line.GoodsID] -= line.Count
		}, "units gone that nobody bought"},
		{"an order that is told what remains of another item", orders(4), func(h *history.History) {
			lines := findOrder(h, history.Sold, 2).Lines
			lines[0].Remaining, lines[1].Remaining = lines[1].Remaining, lines[0].Remaining
		}, "remaining"},
		{"an order that is refused while there is enough", orders(5), func(h *history.History) {
			op := findOrder(h, history.SoldOut, 2)
			op.SentNS, op.ReceivedNS = 1, 2 // nothing had been sold
		}, "was refused while at least 120 were left"},
		{"an order that is made twice", orders(7), func(h *history.History) {
			op := findOrder(h, history.Sold, 2)
			next(h, op).Name = op.Name
		}, "was made 2 times"},
		{"critical sections of orders that overlap", orders(8), func(h *history.History) {
			op := findOrder(h, history.Sold, 2)
			next(h, op).EnteredNS = op.LeftNS - 1
		}, "overlap by 1ns"},
		{"a line that is not in the ledger", withRetries(orders(10)), func(h *history.History) {
			strikeLine(h, findOrder(h, history.Sold, 3))
		}, "2 of its 3 lines are in the ledger"},
		{"a line that is not in the ledger, of an order with an unknown outcome", withRetries(orders(11)),
			func(h *history.History) {
				op := findOrder(h, history.Sold, 3)
				strikeLine(h, op)
				h.End.Final[op.Lines[0].GoodsID] += op.Lines[0].Count
				lose(op)
			}, "2 of its 3 lines are in the ledger"},
		{"an order with an unknown outcome that took effect", withRetries(orders(12)),
			func(h *history.History) { lose(findOrder(h, history.Sold, 3)) }, ""},
		{"an order with an unknown outcome that was deducted in part", orders(14), func(h *history.History) {
			op := findOrder(h, history.Sold, 3)
			undoLine(h, op.Lines[1])
			lose(op)
		}, "but it did not take its units of item"},
		{"an order with an unknown outcome that took effect, without a ledger", orders(16),
			func(h *history.History) { lose(findOrder(h, history.Sold, 3)) }, ""},
		{"a line of a refused order that is in the ledger", withRetries(orders(13)),
			func(h *history.History) {
				op := findOrder(h, history.SoldOut, 2)
				line := op.Lines[1-short(op)]
				h.Ledger = append(h.Ledger, history.Entry{Key: op.Name, GoodsID: line.GoodsID, Count: line.Count})
			}, "whose buyer was not told of a sale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := simulate(c.shop)
			c.plant(h)
			v := verify.Judge(h)
			evidence := strings.Join(v.Evidence, "\n")
			if (v.Result == verify.Correct) != (c.says == "") || !strings.Contains(evidence, c.says) {
				t.Errorf("%s, want %q in\n%s", v.Result, c.says, evidence)
			}
			if !v.DemandExceeded {
				t.Error("no order is refused")
			}
		})
	}
}

// An order that is busy could have been served only if there was enough of every item.
func TestAnOrderIsTurnedAwayIfEveryLineHadEnough(t *testing.T) {
	t.Parallel()
	for empty, want := range map[int64]int64{2: 40, 0: 0} {
		s := plenty(70)
		s.goods = 2
		h := simulate(s)
		h.Run.Set[3], h.Run.Initial[3], h.End.Final[3] = empty, empty, empty
		for range 40 {
			h.Ops = append(h.Ops, history.Op{
				Kind: history.Order, Name: "busy", Lines: []history.Line{{GoodsID: 1, Count: 1}, {GoodsID: 3, Count: 2}},
				SentNS: 2000, ReceivedNS: 3000, Status: 503, Outcome: history.Busy, Replica: "replica-1",
			})
		}
		v := verify.Judge(h)
		if v.TurnedAway != want || (v.Result == verify.Correct) != (want == 0) {
			t.Errorf("%d units of an item: %s, %d turned away, want %d: %q", empty, v.Result, v.TurnedAway, want, v.Evidence)
		}
	}
}
