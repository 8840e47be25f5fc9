package verify_test

import (
	"slices"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// findRetry finds an answer to a request that was sent again while stock was left.
func findRetry(h *history.History, outcome history.Outcome) (again, first *history.Op) {
	answers := func(op history.Op, name string) bool {
		return op.Name == name && op.Outcome == outcome && !op.Again && !op.Replayed
	}
	again = find(h, func(op history.Op) bool {
		isFirst := func(first history.Op) bool { return answers(first, op.Name) }
		return op.Again && op.Replayed && op.Outcome == outcome && slices.ContainsFunc(h.Ops, isFirst)
	})
	return again, find(h, func(op history.Op) bool { return answers(op, again.Name) })
}

func TestPlantedBugsOfRetriesAreFound(t *testing.T) {
	t.Parallel()
	single, several := withRetries(plenty(0)), withRetries(orders(0))
	for _, c := range []struct {
		name   string
		shop   shop
		plant  func(h *history.History)
		result verify.Result
		says   string
	}{
		{"a retry that deducts again and repeats the first answer", single, func(h *history.History) { h.End.Final[1]-- },
			verify.Wrong, "units gone that nobody bought: 1"},
		{"a retry that deducts again and is told so", single, func(h *history.History) {
			again, _ := findRetry(h, history.Sold)
			again.Replayed = false
			again.Remaining = h.End.Final[1] - 1
			h.End.Final[1]--
		}, verify.Wrong, "was made 2 times"},
		{"a retry that is told another stock", single, func(h *history.History) {
			again, _ := findRetry(h, history.Sold)
			again.Remaining++
		}, verify.Wrong, "remaining, and on the retry sold"},
		{"a retry that is refused after the first answer", single, func(h *history.History) {
			again, _ := findRetry(h, history.Sold)
			again.Outcome, again.Status, again.Replayed, again.Remaining = history.Busy, 422, false, 0
		}, verify.Wrong, "was refused when it was sent again (422"},
		{"a retry that is told to wait", single, func(h *history.History) {
			again, _ := findRetry(h, history.Sold)
			again.Outcome, again.Status, again.Replayed, again.Remaining = history.Busy, 409, false, 0
		}, verify.Correct, ""},
		{"a retry that is refused while stock is left", single, func(h *history.History) {
			again, first := findRetry(h, history.Sold)
			again.Outcome, again.Replayed, again.Remaining = history.SoldOut, false, 0
			lose(first)
		}, verify.Wrong, "was refused while at least"},
		{"a retry of an order that is told another stock", several, func(h *history.History) {
			again, _ := findRetry(h, history.Sold)
			again.Lines = slices.Clone(again.Lines)
			again.Lines[0].Remaining++
		}, verify.Wrong, "and on the retry sold"},
		{"a retry of a refused order that names another item", several, func(h *history.History) {
			again, _ := findRetry(h, history.SoldOut)
			again.Lines = unanswered(again.Lines)
			again.Lines = append(again.Lines, history.Line{GoodsID: 1, Count: 1, Short: true})
		}, verify.Wrong, "and on the retry sold_out"},
		{"no retry while stock is left", withRetries(flashSale(0)), func(h *history.History) {
			for i := range h.Ops {
				op := &h.Ops[i]
				if op.Again = op.Replayed || op.Outcome == history.Busy; op.Again {
					op.SentNS, op.ReceivedNS = h.End.EndedNS+100, h.End.EndedNS+200
				}
			}
		}, verify.Inconclusive, "deducting twice was not tested"},
		{"no retry at the other replica", single, func(h *history.History) {
			first := map[string]string{}
			for _, op := range h.Ops {
				if !op.Again {
					first[op.Name] = op.Replica
				}
			}
			for i := range h.Ops {
				h.Ops[i].Replica = first[h.Ops[i].Name]
			}
		}, verify.Inconclusive, "reached another replica than before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := simulate(c.shop)
			c.plant(h)
			expect(t, h, c.result, c.says)
		})
	}
}
