package verify_test

import (
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// tail is a shop whose buyers want up to 8 units, so that some are refused while a few are left.
func tail(seed uint64) shop {
	return shop{seed: seed, users: 10, requests: 300, goods: 2, stock: 400, counts: 8, exclusive: true}
}

func TestARefusalThatTellsTheStockOfAnotherTimeIsWrong(t *testing.T) {
	t.Parallel()
	h := simulate(tail(2))
	var refused *history.Op // the last buyer who was refused
	var left int64          // by the first one
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Outcome != history.SoldOut || op.GoodsID != 1 {
			continue
		}
		if refused == nil {
			left = op.Remaining
		}
		refused = op
	}
	if refused == nil || refused.Remaining == left {
		t.Fatal("the first and the last buyer who were refused were told the same")
	}
	refused.Remaining, refused.Count = left, left+1
	expect(t, h, verify.Wrong, "which was not so during the request")
}

// withTokens returns the history of a correct service whose sales have rising tokens.
func withTokens(t *testing.T, s shop) *history.History {
	t.Helper()
	h := simulate(s)
	for token, i := range sales(h) {
		h.Ops[i].Token = uint64(token + 1)
	}
	h.Run.Fenced = true
	expect(t, h, verify.Correct, "")
	return h
}

func TestTokensMustRise(t *testing.T) {
	t.Parallel()
	for _, restocks := range []float64{0, 0.1} {
		s := plenty(3)
		s.restocks = restocks
		h := withTokens(t, s)
		at := sales(h)
		h.Ops[at[200]].Token = h.Ops[at[6]].Token // answered long before
		expect(t, h, verify.Wrong, "which is not greater")
	}
}

func TestASaleWithoutATokenIsWrongIfTheLockIsFenced(t *testing.T) {
	t.Parallel()
	h := withTokens(t, plenty(3))
	tokenless := sales(h)[7]
	h.Ops[tokenless].Token = 0
	expect(t, h, verify.Wrong, "was sold without a fencing token")

	again := h.Ops[tokenless]
	again.Again, again.Replayed = true, true
	h.Run.Keys, h.Ops[tokenless].Outcome = true, history.Unknown
	h.Ops = append(h.Ops, again)
	expect(t, h, verify.Correct, "")
}
