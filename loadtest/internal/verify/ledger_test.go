package verify_test

import (
	"slices"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// withLedger returns the history of a correct service that keeps a ledger.
func withLedger(s shop) *history.History { return keepLedger(simulate(s)) }

// keepLedger adds a ledger to a history, and sends every tenth request again, which gets its first answer again.
func keepLedger(h *history.History) *history.History {
	h.Run.Keys, h.Run.Ledger, h.End.LedgerRead = true, true, true
	for i, op := range slices.Clone(h.Ops) {
		if op.Kind != history.Deduct {
			continue
		}
		switch op.Outcome {
		case history.Sold:
			row := history.Entry{Key: op.Name, GoodsID: op.GoodsID, Count: op.Count, Remaining: op.Remaining}
			h.Ledger = append(h.Ledger, row)
		case history.SoldOut:
			h.Ledger = append(h.Ledger, history.Entry{Key: op.Name, GoodsID: op.GoodsID, Remaining: op.Remaining})
		default:
			continue
		}
		if i%10 == 0 {
			again := op
			again.Again, again.Replayed, again.EnteredNS, again.LeftNS, again.Token = true, true, 0, 0, 0
			again.RequestID += "-again"
			again.SentNS, again.ReceivedNS = h.End.EndedNS+100, h.End.EndedNS+200
			h.Ops = append(h.Ops, again)
		}
	}
	return h
}

// entry finds the ledger row of a deduction.
func entry(h *history.History, deduction string) *history.Entry {
	return &h.Ledger[slices.IndexFunc(h.Ledger, func(e history.Entry) bool { return e.Key == deduction })]
}

func TestPlantedBugsOfTheLedgerAreFound(t *testing.T) {
	t.Parallel()
	strike := func(h *history.History, deduction string) {
		h.Ledger = slices.DeleteFunc(h.Ledger, func(e history.Entry) bool { return e.Key == deduction })
	}
	for _, c := range []struct {
		name  string
		shop  shop
		plant func(h *history.History)
		gaps  int64
		says  string // empty: correct
	}{
		{"nothing", plenty(1), func(*history.History) {}, 0, ""},
		{"a sale that is not in the ledger", plenty(3), func(h *history.History) { strike(h, h.Ops[sales(h)[40]].Name) },
			2, "was confirmed but is not in the ledger"},
		{"a sale that is in the ledger twice", plenty(4), func(h *history.History) {
			h.Ledger = append(h.Ledger, *entry(h, h.Ops[sales(h)[40]].Name))
		}, 2, "is in the ledger more than once"},
		{"a sale that is in the ledger with another count", plenty(5), func(h *history.History) {
			entry(h, h.Ops[sales(h)[40]].Name).Count++
		}, 2, "was confirmed with 1 units, "},
		{"a sale that is in the ledger with another answer", plenty(6), func(h *history.History) {
			entry(h, h.Ops[sales(h)[40]].Name).Remaining++
		}, 1, "but the ledger says"},
		{"a ledger row for a deduction that was refused as sold out", flashSale(7), func(h *history.History) {
			refused := find(h, func(op history.Op) bool { return op.Outcome == history.SoldOut && !op.Again })
			entry(h, refused.Name).Count = 1
		}, 2, "whose buyer was not told of a sale"},
		{"a ledger row for a deduction that nobody sent", plenty(8), func(h *history.History) {
			h.Ledger = append(h.Ledger, history.Entry{Key: "stranger", GoodsID: 1, Count: 1})
		}, 2, "deduction stranger, whose buyer was not told of a sale"},
		{"a unit that is neither in the stock nor in the ledger", plenty(9), func(h *history.History) {
			lose(&h.Ops[sales(h)[40]]) // it may be gone, so the stock alone proves nothing
			strike(h, find(h, func(op history.Op) bool { return op.Outcome == history.Unknown }).Name)
		}, 1, "add up to 999 instead of 1000"},
		{"an unknown outcome that took effect", plenty(10), func(h *history.History) { lose(&h.Ops[sales(h)[41]]) }, 0, ""},
		{"units of another deduction in the row of one whose outcome is unknown", plenty(18), func(h *history.History) {
			at := sales(h)
			lose(&h.Ops[at[40]])
			lose(&h.Ops[at[41]])
			entry(h, h.Ops[at[40]].Name).Count = 2
			strike(h, h.Ops[at[41]].Name)
		}, 1, "whose outcome is unknown and which asked for 1"},
		{"an unknown outcome that becomes known", plenty(17), func(h *history.History) {
			again := find(h, func(op history.Op) bool { return op.Again && op.Outcome == history.Sold })
			lose(find(h, func(op history.Op) bool { return op.Name == again.Name && !op.Again }))
		}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := withLedger(c.shop)
			c.plant(h)
			want := verify.Wrong
			if c.says == "" {
				want = verify.Correct
			}
			v := expect(t, h, want, c.says)
			if v.LedgerGaps != c.gaps || v.Replays == 0 {
				t.Errorf("%d gaps, %d replays, want %d gaps", v.LedgerGaps, v.Replays, c.gaps)
			}
		})
	}
}

func TestLedgerAndRestocksAddUp(t *testing.T) {
	t.Parallel()
	s := plenty(21)
	s.restocks = 0.05
	h := withLedger(s)
	if v := verify.Judge(h); v.Result != verify.Correct || v.Restocked == 0 {
		t.Fatalf("%s, %d restocked: %v", v.Result, v.Restocked, v.Evidence)
	}
	// A restock with an unknown outcome may have taken effect or not.
	find(h, isRestock).Outcome = history.Unknown
	if v := verify.Judge(h); v.Result != verify.Correct {
		t.Errorf("a restock with an unknown outcome: %s: %v", v.Result, v.Evidence)
	}
}

// A deduction read the stock before the restock and wrote it after: all later ones miss the units put back.
func TestLostRestockIsFound(t *testing.T) {
	t.Parallel()
	s := plenty(22)
	s.restocks = 0.05
	h := simulate(s)
	lost := *find(h, isRestock)
	for j := range h.Ops {
		if h.Ops[j].Kind == history.Deduct && h.Ops[j].SentNS > lost.ReceivedNS {
			h.Ops[j].Remaining -= lost.Count
		}
	}
	h.End.Final[1] -= lost.Count
	if v := expect(t, h, verify.Wrong, "units gone that nobody bought: 1"); v.Leaked != lost.Count {
		t.Errorf("%d leaked, want the %d that were put back", v.Leaked, lost.Count)
	}
}
