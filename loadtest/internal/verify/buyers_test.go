package verify_test

import (
	"fmt"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// limited is a history of one buyer after the other. Each has a limit of 3, buys 2 units and then 1, and is refused one
// more. Each request but the first of a buyer is sent while the one before it is in flight.
func limited() *history.History {
	const buyers = 40
	h := &history.History{
		Run: history.Run{
			Cell:  history.Cell{Subject: history.Subject{Strategy: "ledger", Store: "mysql", Replicas: 1}},
			Claim: verify.ClaimCorrect, Witness: history.WitnessOracle, Buyers: true,
			Initial: map[int64]int64{1: 1000},
		},
		End: &history.End{Final: map[int64]int64{1: 1000 - 3*buyers}},
	}
	remaining := int64(1000)
	for i := range buyers {
		bought := int64(0)
		for k, count := range []int64{2, 1, 1} {
			at := int64(1000*i + 100*k)
			op := history.Op{
				Kind: history.Deduct, Client: k, Name: fmt.Sprint("r", i, "-", k), GoodsID: 1, Count: count,
				Buyer: fmt.Sprint("buyer-", i), BuyerLimit: 3, SentNS: at, ReceivedNS: at + 150, Replica: "replica-1",
			}
			if k < 2 {
				remaining -= count
				bought += count
				op.Outcome, op.Remaining = history.Sold, remaining
			} else {
				op.Outcome, op.Bought, op.Error = history.BuyerLimit, bought, "/problems/buyer-limit"
			}
			h.Ops = append(h.Ops, op)
		}
	}
	return h
}

func TestPlantedBugsOfLimitsAreFound(t *testing.T) {
	t.Parallel()
	sellRefused := func(h *history.History) {
		h.Ops[2].Outcome, h.Ops[2].Remaining = history.Sold, h.End.Final[1]-1
		h.End.Final[1]--
	}
	for _, c := range []struct {
		name           string
		plant          func(h *history.History)
		beyond, within int64
		result         verify.Result
		says           string
	}{
		{"nothing", func(*history.History) {}, 0, 0, verify.Correct, ""},
		{"a sale beyond the limit", sellRefused, 1, 0, verify.Wrong, "buyer-0 was sold 4 units, 1 beyond the limit of 3"},
		{"an unknown outcome instead of a sale that reached the limit", func(h *history.History) {
			h.Ops[1].Outcome = history.Unknown
		}, 0, 0, verify.Correct, ""},
		{"an unknown outcome beyond the limit", func(h *history.History) {
			h.Ops[2].Outcome = history.Unknown
		}, 0, 0, verify.Correct, ""},
		{"a refusal instead of a sale that reaches the limit", func(h *history.History) {
			h.Ops[1].Outcome, h.Ops[1].Bought = history.BuyerLimit, 3
			h.End.Final[1]++
			h.Ops[2].Bought = 3
		}, 0, 2, verify.Wrong, "wanted 1 and was refused, but with at most 2 units bought it kept the limit of 3"},
		{"a refusal that contradicts itself", func(h *history.History) { h.Ops[2].Bought = 2 }, 0, 1,
			verify.Wrong, "at most 2 units bought"},
		{"a refusal that tells too many units", func(h *history.History) { h.Ops[2].Bought = 4 }, 0, 0,
			verify.Wrong, "was told that buyer-0 had bought 4 units, but it was from 2 to 3"},
		{"a refusal that is sent again and replayed", func(h *history.History) {
			again := h.Ops[2]
			again.Again, again.Replayed, again.SentNS, again.ReceivedNS = true, true, 90_000, 90_001
			h.Ops = append(h.Ops, again)
		}, 0, 0, verify.Correct, ""},
		{"a refusal that is sold when it is sent again", func(h *history.History) {
			again := h.Ops[2]
			again.Again, again.SentNS, again.ReceivedNS = true, 90_000, 90_001
			again.Outcome, again.Error, again.Remaining = history.Sold, "", h.End.Final[1]-1
			h.End.Final[1]--
			h.Ops = append(h.Ops, again)
		}, 1, 0, verify.Wrong, "1 beyond the limit of 3"},
		{"a limit that nobody reaches", func(h *history.History) {
			h.Run.OmitsRemaining = true
			for i := range h.Ops {
				op := &h.Ops[i]
				op.BuyerLimit, op.OmitsRemaining = 4, true
				if op.Outcome == history.BuyerLimit {
					h.End.Final[1]--
					op.Outcome, op.Error = history.Sold, ""
				}
			}
		}, 0, 0, verify.Inconclusive, "no buyer was refused"},
		{"no race for a limit", func(h *history.History) {
			for i := range h.Ops {
				h.Ops[i].ReceivedNS = h.Ops[i].SentNS + 50
			}
		}, 0, 0, verify.Inconclusive, "races for the limit were hardly tested"},
	} {
		h := limited()
		c.plant(h)
		v := expect(t, h, c.result, c.says)
		if v.BeyondLimit != c.beyond || v.RefusedWithinLimit != c.within {
			t.Errorf("%s: %d beyond, %d refused within, want %d, %d", c.name, v.BeyondLimit, v.RefusedWithinLimit,
				c.beyond, c.within)
		}
	}
}

// Of two tries that are in flight at the same time, the second may be carried out, and the first is told so. The answer
// to the second is the answer to both.
func TestABuyerWhoIsToldTheLimitIsNotTurnedAway(t *testing.T) {
	t.Parallel()
	h := limited()
	for i := range h.Ops {
		if first := &h.Ops[i]; first.Outcome == history.BuyerLimit {
			second := *first
			second.Again = true
			h.Ops = append(h.Ops, second)
			first = &h.Ops[i] // append may have moved it
			first.Outcome, first.Bought, first.Error = history.Busy, 0, "/problems/in-progress"
		}
	}
	if v := verify.Judge(h); v.TurnedAway != 0 {
		t.Errorf("%d were turned away, want none: %q", v.TurnedAway, v.Evidence)
	}
}
