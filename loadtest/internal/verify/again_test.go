package verify_test

import (
	"slices"
	"strings"
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
		{"nothing", single, func(*testing.T, *history.History) {}, verify.Correct, ""},
		{"nothing, orders", several, func(*testing.T, *history.History) {}, verify.Correct, ""},
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
		{"a retry that finds the first request in progress", single, func(t *testing.T, h *history.History) {
			again, _ := findRetry(t, h, history.Sold)
			again.Outcome, again.Status, again.Replayed = history.Busy, 409, false
		}, verify.Correct, ""},
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
			v := verify.Judge(h)
			evidence := strings.Join(v.Evidence, "\n")
			if v.Result != c.result || !strings.Contains(evidence, c.says) {
				t.Errorf("%s, want %s and %q in\n%s", v.Result, c.result, c.says, evidence)
			}
		})
	}
}

func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	h := simulate(withRetries(flashSale(3)))
	var want verify.Figures
	first := map[string]string{}
	for _, op := range h.Ops {
		if !op.Again {
			first[op.Name] = op.Replica
		}
	}
	for _, op := range h.Ops {
		if op.Again {
			want.SentAgain++
			if op.Replica != first[op.Name] {
				want.AgainElsewhere++
			}
		}
	}
	v := verify.Judge(h)
	if v.SentAgain != want.SentAgain || v.AgainElsewhere != want.AgainElsewhere || want.SentAgain == 0 {
		t.Errorf("%d sent again, %d of them to another replica, want %d and %d",
			v.SentAgain, v.AgainElsewhere, want.SentAgain, want.AgainElsewhere)
	}
	// More than half of the requests, and of the retries, come when the stock is sold.
	if v.AgainInStock < 1 || v.AgainInStock > v.SentAgain/2 {
		t.Errorf("%d of %d were sent again while stock was left", v.AgainInStock, v.SentAgain)
	}
	if v.Requests != 400 {
		t.Errorf("%d requests, want those of the load alone: 400", v.Requests)
	}
}

func TestStockThatIsNotWhatWasSetConvicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(run *history.Run)
		says   string // empty: correct
	}{
		"as set":          {func(*history.Run) {}, ""},
		"as it was found": {func(run *history.Run) { run.Set = nil }, ""},
		"one too few": {
			func(run *history.Run) { run.Set[1]++ },
			"item 1: the stock was set to 1001, but before the run there were 1000",
		},
		"one too few in the store that sells": {
			func(run *history.Run) { run.InitialSeller = map[int64]int64{1: 999} },
			"the stock was set to 1000, but before the run there were 999 in the store that sells",
		},
	} {
		h := simulate(plenty(80))
		c.change(&h.Run)
		v := verify.Judge(h)
		want := verify.Wrong
		if c.says == "" {
			want = verify.Correct
		}
		if v.Result != want || (v.SetWrong != 0) != (want == verify.Wrong) ||
			!strings.Contains(strings.Join(v.Evidence, "\n"), c.says) {
			t.Errorf("%s: %s, %d units set wrong, want %s: %q", name, v.Result, v.SetWrong, want, v.Evidence)
		}
	}
}
