package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

// at returns a round of a strategy at a value of a sweep, with 300 units.
func at(axis string, value int, strategy string, round int) history.Run {
	run := plenty(strategy, "correct")
	run.Store, run.Round, run.Sweep, run.Value = "mysql", round, axis, fmt.Sprint(value)
	run.Initial = map[int64]int64{1: 300}
	return run
}

// swept is a sweep over users: three rounds of each strategy at 1, 8 and 32 users. paces are the µs per request at
// these values, 0 for a value that was not run. The rounds differ by noise percent.
func swept(paces map[string][3]int, noise int) *Report {
	var histories []*history.History
	for round := 1; round <= 3; round++ {
		for strategy, pace := range paces {
			for i, users := range []int{1, 8, 32} {
				if pace[i] == 0 {
					continue
				}
				percent := 100 + noise*[]int{1, -1, 0}[round-1]
				h := play(at("users", users, strategy, round), 300,
					time.Duration(pace[i])*time.Microsecond*time.Duration(percent)/20)
				h.Run.Users = users
				if users == 1 {
					for i := range h.Ops {
						h.Ops[i].ReceivedNS = h.Ops[i].SentNS + 10
					}
				}
				histories = append(histories, h)
			}
		}
	}
	return reported(histories...)
}

func TestSweepShowsHowCostGrows(t *testing.T) {
	t.Parallel()
	r := swept(map[string][3]int{"update": {300, 150, 100}, "for-update": {600, 600, 1200}}, 2)
	if r.Err() != nil {
		t.Errorf("problems: %q", r.Problems)
	}
	s := r.Sweep()
	if s == nil || s.Axis != "users" || strings.Join(s.Values, " ") != "1 8 32" || len(s.Charts) != 1 ||
		len(s.Charts[0].Curves) != 2 || s.Charts[0].Curves[0].Label != "update" {
		t.Fatalf("got %+v", s)
	}
	if first := s.Charts[0].Curves[1].Rows[0]; !first.Untested || first.ClaimHeld {
		t.Errorf("for-update with one user: %+v, want an untested claim", first)
	}
	if s := sample().Sweep(); s != nil {
		t.Errorf("a report without a sweep has %+v", s)
	}
	mustSay(t, text(t, r), "plenty · goodput/s by users · 2 replicas", "0.50×", "untested")
}

// ofGoods is the history of a sweep over items, of which all but the first keep their units.
func ofGoods(goods int) *history.History {
	h := play(at("goods", goods, "update", 1), 300, time.Millisecond)
	for id := 2; id <= goods; id++ {
		h.Run.Initial[int64(id)], h.End.Final[int64(id)] = 5, 5
	}
	return h
}

func TestUncontendedValueOfASweepIsUntested(t *testing.T) {
	t.Parallel()
	for rest, held := range map[int]bool{5: true, 300: false} {
		var histories []*history.History
		for goods, contended := range map[int]int{1: rest, 1000: 300} {
			h := ofGoods(goods)
			for i := range h.Ops[:contended] {
				h.Ops[i].ReceivedNS = h.Ops[i].SentNS + 10
			}
			histories = append(histories, h)
		}
		r := reported(histories...)
		for _, row := range r.Rows {
			if row.Uncontended != (row.Goods == 1000 || !held) || row.Untested != (row.Goods == 1000 && held) {
				t.Errorf("%s: uncontended %v, untested %v", row.Label(), row.Uncontended, row.Untested)
			}
		}
		if r.ClaimsHeld != held {
			t.Errorf("claims held: %v, want %v: %v", r.ClaimsHeld, held, r.Problems)
		}
	}
}
