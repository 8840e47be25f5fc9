package report

import (
	"bytes"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// Ten buyers are in the critical section one after the other, except for two in rounds 2 and 3.
func TestARowKeepsTheWindowsOfTheFirstRoundWithAFinding(t *testing.T) {
	t.Parallel()
	rounds := make([]*history.History, 4)
	for i := range rounds {
		run := plenty("some", verify.ClaimCorrect)
		run.Round, run.Exclusive, run.Initial = 1+i, true, map[int64]int64{1: 10}
		h := play(run, 10, time.Millisecond)
		for i := range h.Ops {
			h.Ops[i].EnteredNS, h.Ops[i].LeftNS = h.Ops[i].SentNS+10, h.Ops[i].SentNS+1010
		}
		if run.Round == 2 || run.Round == 3 {
			h.Ops[5].LeftNS = h.Ops[6].EnteredNS + 500
		}
		rounds[i] = h
	}
	var text bytes.Buffer
	must.Succeed(t, reported(rounds...).WriteJSON(&text))
	r, err := ReadJSON(&text)
	must.Succeed(t, err)
	windows := r.Rows[0].Windows
	if len(windows) != 1 || windows[0].Round != 2 {
		t.Fatalf("got %+v", windows)
	}
	if f := windows[0].Findings; len(f) != 1 || f[0].Kind != timeline.Overlap || f[0].End-f[0].Start != 500 {
		t.Errorf("got %+v", f)
	}
}
