package verify_test

import (
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// withCancellations returns the history of a correct service that cancels the last sales, and some requests before they
// are sent.
func withCancellations(t *testing.T) *history.History {
	t.Helper()
	h := simulate(plenty(0))
	h.Run.Keys, h.Run.Cancels = true, true
	const wanted = 20
	all := h.Ops
	at := h.End.EndedNS
	for _, op := range slices.Backward(slices.Clone(h.Ops)) {
		if cancelled := len(h.Ops) - len(all); op.Outcome == history.Sold && cancelled < wanted {
			h.Ops = append(h.Ops, history.Op{
				Kind: history.CancelSale, Name: op.Name, GoodsID: op.GoodsID, SentNS: at + 1, ReceivedNS: at + 2,
				Outcome: history.Done, Replayed: true, State: history.Cancelled,
				Sold: op.Count, Cancelled: op.Count, GivenBack: op.Count,
			})
			h.End.Final[op.GoodsID] += op.Count
			at += 2
		}
	}
	for i := range wanted {
		op := h.Ops[0]
		op.Name, op.Outcome = op.Name+strings.Repeat("x", i+1), history.Withdrawn
		op.SentNS, op.ReceivedNS = at+3, at+4
		h.Ops = append(h.Ops, history.Op{
			Kind: history.CancelSale, Name: op.Name, GoodsID: op.GoodsID, SentNS: at + 1, ReceivedNS: at + 2,
			Outcome: history.Done, State: history.Cancelled,
		})
		h.Ops = append(h.Ops, op)
		at += 4
	}
	return h
}

func TestPlantedBugsOfCancellationsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		plant  func(h *history.History, first *history.Op)
		result verify.Result
		says   string
	}{
		{"nothing", func(*history.History, *history.Op) {}, verify.Correct, ""},
		{"units that are given back twice", func(h *history.History, first *history.Op) {
			h.End.Final[first.GoodsID] += first.Sold
		}, verify.Wrong, "units sold but still in stock"},
		{"units that are not given back", func(h *history.History, first *history.Op) {
			h.End.Final[first.GoodsID] -= first.Sold
		}, verify.Wrong, "units gone that nobody bought"},
		{"more units than were sold", func(h *history.History, first *history.Op) {
			first.Cancelled, first.GivenBack = first.Cancelled+1, first.GivenBack+1
			h.End.Final[first.GoodsID]++
		}, verify.Wrong, "was told to be of"},
		{"a part in place of everything", func(h *history.History, first *history.Op) {
			first.Cancelled, first.GivenBack = 0, 0
			h.End.Final[first.GoodsID] -= first.Sold
		}, verify.Wrong, "0 for all, cancelled 0"},
		{"a sale that was cancelled before", func(h *history.History, _ *history.Op) {
			last := &h.Ops[len(h.Ops)-1]
			last.Outcome = history.Sold
			h.End.Final[last.GoodsID] -= last.Count
		}, verify.Wrong, "was told sold after it had been cancelled"},
		{"a sale of which a cancellation says that it was not made", func(h *history.History, first *history.Op) {
			h.End.Final[first.GoodsID] -= first.Sold
			first.Sold, first.Cancelled, first.GivenBack = 0, 0, 0
		}, verify.Wrong, "told that nothing had been sold"},
		{"a sale that nobody cancelled", func(h *history.History, _ *history.Op) {
			last := len(h.Ops) - 2
			h.Ops = slices.Delete(h.Ops, last, last+1)
		}, verify.Wrong, "nobody had asked for that"},
		{"no sale is cancelled", func(h *history.History, _ *history.Op) {
			*h = *simulate(plenty(0))
			h.Run.Cancels = true
		}, verify.Inconclusive, "0 sales were cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := withCancellations(t)
			c.plant(h, find(h, func(op history.Op) bool { return op.Kind == history.CancelSale }))
			expect(t, h, c.result, c.says)
		})
	}
}
