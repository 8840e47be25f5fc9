package verify_test

import (
	"slices"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// findRetry finds an answer to a request that was sent again while stock was left.
func findRetry(t *testing.T, h *history.History, outcome history.Outcome) (again, first *history.Op) {
	t.Helper()
	for i := range h.Ops {
		again := &h.Ops[i]
		if !again.Again || again.Outcome != outcome || !again.Replayed {
			continue
		}
		for j := range h.Ops {
			if first := &h.Ops[j]; first.Name == again.Name && !first.Again && first.Outcome == outcome && !first.Replayed {
				return again, first
			}
		}
	}
	t.Fatalf("the history has no retry that is %s", outcome)
	return nil, nil
}

func TestPlantedBugsOfRetriesAreFound(t *testing.T) {
	t.Parallel()
	single, several := withRetries(plenty(0)), withRetries(orders(0))
	for _, c := range []struct {
		name   string
		shop   shop
		plant  func(t *testing.T, h *history.History)
		result verify.Result
		says   string
	}{
		{"a retry that deducts again and repeats the first answer", single, func(_ *testing.T, h *history.History) {
			h.End.Final[1]--
		}, verify.Wrong, "units gone that nobody bought: 1"},
		{"a retry that deducts again and is told so", single, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Replayed = false
			again.Remaining = h.End.Final[1] - 1
			h.End.Final[1]--
		}, verify.Wrong, "was made 2 times"},
		{"a retry that is told another stock", single, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Remaining++
		}, verify.Wrong, "remaining, and on the retry sold"},
		{"a retry that is refused after the first answer", single, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Outcome, again.Status, again.Replayed, again.Remaining = history.Busy, 422, false, 0
		}, verify.Wrong, "was refused when it was sent again (422"},
		{"a retry that is told to wait", single, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Outcome, again.Status, again.Replayed, again.Remaining = history.Busy, 409, false, 0
		}, verify.Correct, ""},
		{"a retry that is refused while stock is left", single, func(t *testing.T, h *history.History) {
			again, first := findRetry(t, h, history.Sold)
			again.Outcome, again.Replayed, again.Remaining = history.SoldOut, false, 0
			lose(first)
		}, verify.Wrong, "was refused while at least"},
		{"a retry of an order that is told another stock", several, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Lines = slices.Clone(again.Lines)
			again.Lines[0].Remaining++
		}, verify.Wrong, "and on the retry sold"},
		{"a retry of a refused order that names another item", several, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.SoldOut)
			again.Lines = unanswered(again.Lines)
			again.Lines = append(again.Lines, history.Line{GoodsID: 1, Count: 1, Short: true})
		}, verify.Wrong, "and on the retry sold_out"},
		{"no retry while stock is left", withRetries(flashSale(0)), func(_ *testing.T, h *history.History) {
			for i := range h.Ops {
				op := &h.Ops[i]
				if op.Again = op.Replayed || op.Outcome == history.Busy; op.Again {
					op.SentNS, op.ReceivedNS = h.End.EndedNS+100, h.End.EndedNS+200
				}
			}
		}, verify.Inconclusive, "deducting twice was not tested"},
		{"no retry at the other replica", single, func(_ *testing.T, h *history.History) {
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
			c.plant(t, h)
			expect(t, h, c.result, c.says)
		})
	}
}
