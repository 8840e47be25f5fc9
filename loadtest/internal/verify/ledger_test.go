package verify_test

import (
	"fmt"
	"slices"
	"strings"
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
	for i := range h.Ledger {
		if h.Ledger[i].Key == deduction {
			return &h.Ledger[i]
		}
	}
	return nil
}

// again finds a request that was sent again.
func again(h *history.History, outcome history.Outcome) *history.Op {
	for i := range h.Ops {
		if h.Ops[i].Again && h.Ops[i].Outcome == outcome {
			return &h.Ops[i]
		}
	}
	return nil
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
		other int64  // answers unlike the first one
		says  string // empty: correct
	}{
		{"nothing", plenty(1), func(*history.History) {}, 0, 0, ""},
		{"nothing in a flash sale", flashSale(2), func(*history.History) {}, 0, 0, ""},
		{"a sale that is not in the ledger", plenty(3), func(h *history.History) { strike(h, h.Ops[sales(h)[40]].Name) },
			2, 0, "was confirmed but is not in the ledger"},
		{"a sale that is in the ledger twice", plenty(4), func(h *history.History) {
			h.Ledger = append(h.Ledger, *entry(h, h.Ops[sales(h)[40]].Name))
		}, 2, 0, "is in the ledger more than once"},
		{"a sale that is in the ledger with another count", plenty(5), func(h *history.History) {
			entry(h, h.Ops[sales(h)[40]].Name).Count++
		}, 2, 0, "was confirmed with 1 units, "},
		{"a sale that is in the ledger with another answer", plenty(6), func(h *history.History) {
			entry(h, h.Ops[sales(h)[40]].Name).Remaining++
		}, 1, 0, "but the ledger says"},
		{"a ledger row for a deduction that was refused as sold out", flashSale(7), func(h *history.History) {
			i := slices.IndexFunc(h.Ops, func(op history.Op) bool { return op.Outcome == history.SoldOut && !op.Again })
			entry(h, h.Ops[i].Name).Count = 1
		}, 2, 0, "whose buyer was not told of a sale"},
		{"a ledger row for a deduction that nobody sent", plenty(8), func(h *history.History) {
			h.Ledger = append(h.Ledger, history.Entry{Key: "stranger", GoodsID: 1, Count: 1})
		}, 2, 0, "deduction stranger, whose buyer was not told of a sale"},
		{"a unit that is neither in the stock nor in the ledger", plenty(9), func(h *history.History) {
			lose(&h.Ops[sales(h)[40]]) // it may be gone, so the stock alone proves nothing
			strike(h, h.Ops[slices.IndexFunc(h.Ops, func(op history.Op) bool { return op.Outcome == history.Unknown })].Name)
		}, 1, 0, "add up to 999 instead of 1000"},
		{"an unknown outcome that took effect", plenty(10), func(h *history.History) {
			lose(&h.Ops[sales(h)[41]])
		}, 0, 0, ""},
		{"units of another deduction in the row of one whose outcome is unknown", plenty(18), func(h *history.History) {
			at := sales(h)
			lose(&h.Ops[at[40]])
			lose(&h.Ops[at[41]])
			entry(h, h.Ops[at[40]].Name).Count = 2
			strike(h, h.Ops[at[41]].Name)
		}, 1, 0, "whose outcome is unknown and which asked for 1"},
		{"another sale in the second answer", plenty(12), func(h *history.History) { again(h, history.Sold).Remaining-- },
			0, 1, "and on the retry sold"},
		{"a sale that is answered sold out the second time", plenty(13), func(h *history.History) {
			again(h, history.Sold).Outcome = history.SoldOut
		}, 0, 1, "and on the retry sold_out"},
		{"a refusal that is answered sold the second time", flashSale(14), func(h *history.History) {
			op := again(h, history.SoldOut)
			op.Outcome, op.Status = history.Sold, 200
		}, 1, 1, "was first told sold_out"},
		{"a deduction that is rejected when it is sent again", plenty(15), func(h *history.History) {
			op := again(h, history.Sold)
			op.Outcome, op.Status, op.Error, op.Replayed = history.Rejected, 422, "/problems/idempotency-key-reused", false
		}, 0, 1, "was refused when it was sent again (422"},
		{"a deduction that is still in progress when it is sent again", plenty(16), func(h *history.History) {
			op := again(h, history.Sold)
			op.Outcome, op.Status, op.Replayed = history.Busy, 409, false
		}, 0, 0, ""},
		{"an unknown outcome that becomes known", plenty(17), func(h *history.History) {
			deduction := again(h, history.Sold).Name
			lose(&h.Ops[slices.IndexFunc(h.Ops, func(op history.Op) bool { return op.Name == deduction && !op.Again })])
		}, 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := withLedger(c.shop)
			c.plant(h)
			v := verify.Judge(h)
			evidence := strings.Join(v.Evidence, "\n")
			if v.LedgerGaps != c.gaps || v.DifferentAnswers != c.other {
				t.Errorf("%d gaps, %d unlike, want %d and %d", v.LedgerGaps, v.DifferentAnswers, c.gaps, c.other)
			}
			if (v.Result == verify.Correct) != (c.says == "") || !strings.Contains(evidence, c.says) {
				t.Errorf("%s, want %q in\n%s", v.Result, c.says, evidence)
			}
			if c.says == "" && v.Replays == 0 {
				t.Error("no replay is counted")
			}
		})
	}
}

func TestUnknownOutcomeThatDidNotTakeEffectIsNotInTheLedger(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(11))
	lose(neverHappened(h, 41))
	if v := verify.Judge(keepLedger(h)); v.Result != verify.Correct || v.LedgerGaps != 0 {
		t.Errorf("%s, %d gaps: %v", v.Result, v.LedgerGaps, v.Evidence)
	}
}

// An order of several items has a row for each, all with its key.
func TestOrderIsInTheLedgerOnceForEachItem(t *testing.T) {
	t.Parallel()
	h := withLedger(plenty(12))
	for _, op := range slices.Clone(h.Ops) {
		op.GoodsID = 2
		h.Ops = append(h.Ops, op)
	}
	for _, row := range slices.Clone(h.Ledger) {
		row.GoodsID = 2
		h.Ledger = append(h.Ledger, row)
	}
	h.Run.Initial[2], h.End.Final[2] = h.Run.Initial[1], h.End.Final[1]
	if v := verify.Judge(h); v.Result != verify.Correct || v.LedgerGaps != 0 {
		t.Errorf("%s, %d gaps: %v", v.Result, v.LedgerGaps, v.Evidence)
	}
	last := len(h.Ledger) - 1
	h.Ledger = append(h.Ledger, h.Ledger[last])
	want := "item 2: deduction " + h.Ledger[last].Key + " is in the ledger more than once"
	if v := verify.Judge(h); v.Result != verify.Wrong || !strings.Contains(strings.Join(v.Evidence, "\n"), want) {
		t.Errorf("%s: %v, want %q", v.Result, v.Evidence, want)
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
	i := slices.IndexFunc(h.Ops, func(op history.Op) bool { return op.Kind == history.Restock })
	h.Ops[i].Outcome = history.Unknown
	if v := verify.Judge(h); v.Result != verify.Correct {
		t.Errorf("a restock with an unknown outcome: %s: %v", v.Result, v.Evidence)
	}
}

func TestLostRestockIsFound(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint("ledger ", keeps), func(t *testing.T) {
			t.Parallel()
			s := plenty(22)
			s.restocks = 0.05
			h := withLedger(s)
			if h.Run.Ledger = keeps; !keeps {
				h.Ledger = nil
			}
			// A deduction read the stock before the restock and wrote it after: all later ones miss the units put back.
			i := slices.IndexFunc(h.Ops, func(op history.Op) bool { return op.Kind == history.Restock })
			lost := h.Ops[i]
			for j := range h.Ops {
				if h.Ops[j].Kind == history.Deduct && h.Ops[j].SentNS > lost.ReceivedNS {
					h.Ops[j].Remaining -= lost.Count
				}
			}
			h.End.Final[1] -= lost.Count
			v := verify.Judge(h)
			found := strings.Contains(strings.Join(v.Evidence, "\n"), "units gone that nobody bought: 1")
			if v.Result != verify.Wrong || v.Leaked != lost.Count || !found {
				t.Errorf("%s, %d leaked, want the %d that were put back: %v", v.Result, v.Leaked, lost.Count, v.Evidence)
			}
		})
	}
}
