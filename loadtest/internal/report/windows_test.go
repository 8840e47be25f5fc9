package report_test

import (
	"bytes"
	"fmt"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// inTurn is a run in which ten buyers are in the critical section one after the other.
func inTurn(round int) *history.History {
	h := &history.History{
		Run: history.Run{
			Cell:    history.Cell{Subject: history.Subject{Strategy: "some", Store: "mysql", Replicas: 2}, Round: round},
			Initial: map[int64]int64{1: 10}, Claim: verify.ClaimCorrect, Exclusive: true,
		},
		End: &history.End{StartedNS: 1, EndedNS: 1e9, Final: map[int64]int64{1: 0}},
	}
	for i := range int64(10) {
		at := (1 + i) * 1e6
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Deduct, Name: fmt.Sprintf("r%d", i), GoodsID: 1, Count: 1, Outcome: history.Sold, Remaining: 9 - i,
			Replica: "a", SentNS: at - 10, EnteredNS: at, LeftNS: at + 1000, ReceivedNS: at + 1010,
		})
	}
	return h
}

func TestARowKeepsTheWindowsOfTheFirstRoundWithAFinding(t *testing.T) {
	t.Parallel()
	b := report.NewBuilder(report.Environment{})
	for round := 1; round <= 4; round++ {
		h := inTurn(round)
		if round == 2 || round == 3 {
			h.Ops[5].LeftNS, h.Ops[5].ReceivedNS = h.Ops[6].EnteredNS+500, h.Ops[6].EnteredNS+600
		}
		b.Add(h, verify.Judge(h))
	}
	var text bytes.Buffer
	must.Succeed(t, b.Report().WriteJSON(&text))
	r, err := report.ReadJSON(&text)
	must.Succeed(t, err)
	windows := r.Rows[0].Windows
	if len(windows) != 1 || windows[0].Round != 2 {
		t.Fatalf("got %+v", windows)
	}
	if f := windows[0].Findings; len(f) != 1 || f[0].Kind != timeline.Overlap || f[0].End-f[0].Start != 500 {
		t.Errorf("got %+v", f)
	}
}
