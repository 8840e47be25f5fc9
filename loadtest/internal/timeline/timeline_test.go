package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/timeline"
)

const ms = int64(time.Millisecond)

// sale is a sale of one unit of item 1, in its critical section from enter to leave ms.
func sale(name, replica string, enter, leave, remaining int64) history.Op {
	return history.Op{
		Kind: history.Deduct, Name: name, RequestID: name, GoodsID: 1, Count: 1, Outcome: history.Sold, Status: 200,
		Remaining: remaining, Replica: replica, SentNS: enter*ms - ms/2, EnteredNS: enter * ms, LeftNS: leave * ms,
		ReceivedNS: leave*ms + ms/2,
	}
}

// recorded is a history of item 1 with the given sales.
func recorded(stock int64, exclusive bool, ops ...history.Op) *history.History {
	run := history.Run{Claim: "correct", Exclusive: exclusive, Initial: map[int64]int64{1: stock}}
	run.Strategy, run.Workload.Name, run.Replicas, run.Round = "some", "plenty", 2, 1
	return &history.History{Run: run, Ops: ops, End: &history.End{Final: map[int64]int64{1: stock - int64(len(ops))}}}
}

// inTurn returns n sales that follow each other, on two replicas.
func inTurn(n int) (ops []history.Op) {
	for i := range int64(n) {
		replica := []string{"a", "b"}[i%2]
		ops = append(ops, sale(fmt.Sprintf("r%d", i), replica, 10+2*i, 11+2*i, int64(n)-1-i))
	}
	return ops
}

// checkLayout checks what holds for every window: the sections of a lane are of one replica and do not overlap.
func checkLayout(t *testing.T, w timeline.Window) {
	t.Helper()
	until := map[int]int64{}
	last := int64(-1 << 62)
	for i, s := range w.Sections {
		if s.Lane < 0 || s.Lane >= len(w.Lanes) {
			t.Fatalf("section %d is in lane %d of %d", i, s.Lane, len(w.Lanes))
		}
		if s.Start < last {
			t.Errorf("section %d begins before the one that precedes it", i)
		}
		if end, used := until[s.Lane]; used && s.Start < end {
			t.Errorf("%s is drawn over another section of lane %d", s.Request, s.Lane)
		}
		last, until[s.Lane] = s.Start, s.End
		if s.End < w.From || s.Start > w.To {
			t.Errorf("%s (%d to %d) is outside its window (%d to %d)", s.Request, s.Start, s.End, w.From, w.To)
		}
	}
	replicas := []string{}
	for _, lane := range w.Lanes {
		if n := len(replicas); n == 0 || replicas[n-1] != lane.Replica {
			replicas = append(replicas, lane.Replica)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(replicas)))) != len(replicas) {
		t.Errorf("the lanes of a replica are not together: %v", w.Lanes)
	}
}

// only returns the only window, and checks its layout.
func only(t *testing.T, windows []timeline.Window) timeline.Window {
	t.Helper()
	if len(windows) != 1 {
		t.Fatalf("got %d windows, want 1", len(windows))
	}
	checkLayout(t, windows[0])
	return windows[0]
}

func names(w timeline.Window, f timeline.Finding) (names []string) {
	for _, i := range f.Sections {
		names = append(names, w.Sections[i].Request)
	}
	return names
}

func TestTheFirstOverlapAndTheFirstLostUpdateAreShown(t *testing.T) {
	t.Parallel()
	ops := inTurn(200)
	// r100 reads before r99 has written, and overwrites it.
	ops[100].EnteredNS = ops[99].LeftNS - ms/2
	for i := 100; i < len(ops); i++ {
		ops[i].Remaining++
	}
	w := only(t, timeline.Around(recorded(200, true, ops...)))
	if len(w.Findings) != 2 || w.Findings[0].Kind != timeline.Overlap || w.Findings[1].Kind != string(timeline.Lost) {
		t.Fatalf("got %+v", w.Findings)
	}
	for _, f := range w.Findings {
		if got := names(w, f); !slices.Equal(got, []string{"r99", "r100"}) {
			t.Errorf("%s: got %v", f.Kind, got)
		}
	}
	if f := w.Findings[0]; f.End-f.Start != ms/2 || w.Origin+f.Start != ops[100].EnteredNS {
		t.Errorf("the overlap is from %d to %d", f.Start, f.End)
	}
	for _, s := range w.Sections {
		of := s.Request == "r99" || s.Request == "r100"
		if s.Overlap != of || (s.Flaw == timeline.Lost) != of {
			t.Errorf("%s: overlap %v, flaw %q", s.Request, s.Overlap, s.Flaw)
		}
	}
	if n := len(w.Sections); n < 10 || n > 24 || w.Of != 200 || w.Omitted != 0 {
		t.Errorf("%d sections of %d, %d omitted", n, w.Of, w.Omitted)
	}
}

func TestASectionTellsWhatWasReadAndWritten(t *testing.T) {
	t.Parallel()
	op := sale("x", "a", 1, 2, 7)
	op.Count, op.Token = 3, 42
	omitting := sale("y", "a", 3, 4, 0)
	omitting.OmitsRemaining, omitting.Count = true, 2
	w := timeline.Around(recorded(10, true, op, omitting))[0]
	if s := w.Sections[0]; s.Before == nil || *s.Before != 10 || *s.After != 7 || s.Token != 42 || s.Count != 0 {
		t.Errorf("got %+v", s)
	}
	if s := w.Sections[1]; s.Before != nil || s.After != nil || s.Count != 2 {
		t.Errorf("got %+v", s)
	}
}

func TestACorrectRunHasOneWindowFromItsMiddle(t *testing.T) {
	t.Parallel()
	w := only(t, timeline.Around(recorded(200, true, inTurn(200)...)))
	if len(w.Findings) > 0 || len(w.Sections) != 24 || w.Sections[0].Request != "r88" {
		t.Errorf("%d sections from %s, findings %v", len(w.Sections), w.Sections[0].Request, w.Findings)
	}
}

func TestOverlapsAreNoFindingWhereTheyAreAllowed(t *testing.T) {
	t.Parallel()
	a, b := sale("a", "a", 1, 5, 1), sale("b", "b", 2, 6, 0)
	w := timeline.Around(recorded(2, false, a, b))[0]
	if !w.Allowed || len(w.Findings) > 0 || !w.Sections[0].Overlap {
		t.Errorf("got %+v", w)
	}
}

func TestACrowdIsThinned(t *testing.T) {
	t.Parallel()
	var ops []history.Op
	for i := range int64(100) {
		ops = append(ops, sale(fmt.Sprintf("r%d", i), "a", 10+i/10, 50+i, 99))
	}
	for _, w := range timeline.Around(recorded(100, false, ops...)) {
		checkLayout(t, w)
		if len(w.Sections) != 24 || w.Of != 100 || len(w.Findings) == 0 {
			t.Errorf("%d of %d sections, findings %v", len(w.Sections), w.Of, w.Findings)
		}
	}
}

func TestRequestsAreDrawnIfNoSectionIsOnRecord(t *testing.T) {
	t.Parallel()
	op := sale("a", "a", 1, 2, 0)
	op.EnteredNS, op.LeftNS = 0, 0
	w := timeline.Around(recorded(1, true, op))[0]
	s := w.Sections[0]
	if !w.Requests || s.Kind != timeline.Request || w.Origin+s.Start != op.SentNS || w.Origin+s.End != op.ReceivedNS {
		t.Errorf("got %+v", w)
	}
}

func TestTwoSalesOfOneDeductionAndASaleWithoutStockAreFindings(t *testing.T) {
	t.Parallel()
	a, b := sale("a", "a", 1, 2, 0), sale("a", "b", 3, 4, -1)
	w := timeline.Around(recorded(1, true, a, b))[0]
	var kinds []string
	for _, f := range w.Findings {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, []string{string(timeline.Twice), string(timeline.Oversold)}) {
		t.Errorf("got %v", kinds)
	}
}

func TestAScenarioShadesTheTimeFromTheFaultToTheNextSale(t *testing.T) {
	t.Parallel()
	refused := history.Op{
		Kind: history.Deduct, Name: "b", GoodsID: 1, Count: 2, SentNS: 20 * ms, ReceivedNS: 30 * ms, Outcome: history.Busy,
		Replica: "survivor",
	}
	lost := history.Op{
		Kind: history.Deduct, Name: "a", GoodsID: 1, Count: 1, SentNS: 11 * ms, ReceivedNS: 19 * ms,
		Outcome: history.Unknown,
	}
	restock := history.Op{
		Kind: history.Restock, GoodsID: 1, Count: 5, SentNS: 12 * ms, ReceivedNS: 13 * ms, Outcome: history.Sold,
		Remaining: 21,
	}
	h := recorded(16, false, lost, restock, refused, sale("c", "survivor", 40, 41, 15))
	h.Run.Scenario = "holder-dies"
	killed := &timeline.Fault{After: 5 * time.Millisecond, Text: "the victim is killed"}
	w := only(t, timeline.Scenario(h, 10*ms, "", killed))
	want := timeline.Shade{Start: 5 * ms, End: 31*ms + ms/2, Text: "the victim is killed", Sold: true}
	if len(w.Shaded) != 1 || w.Shaded[0] != want || w.Origin != 10*ms || w.From != 0 {
		t.Errorf("got %+v from %d, want %+v", w.Shaded, w.Origin, want)
	}
	var lanes []string
	for _, lane := range w.Lanes {
		lanes = append(lanes, lane.Replica)
	}
	if !slices.Equal(lanes, []string{"survivor", timeline.NoAnswer, timeline.Restocks}) {
		t.Errorf("got lanes %v", lanes)
	}
	var outcomes []string
	for _, s := range w.Sections {
		outcomes = append(outcomes, string(s.Kind)+s.Outcome)
	}
	if !slices.Equal(outcomes, []string{"requestunknown", "restock", "requestbusy", ""}) {
		t.Errorf("got %v", outcomes)
	}
	if s := w.Sections[1]; *s.Before != 16 || *s.After != 21 {
		t.Errorf("the restock is %+v", s)
	}
}

func TestAScenarioWithoutALaterSaleSaysSo(t *testing.T) {
	t.Parallel()
	refused := history.Op{
		Kind: history.Deduct, Name: "b", GoodsID: 1, Count: 2, SentNS: 20 * ms, ReceivedNS: 30 * ms, Outcome: history.Busy,
	}
	h := recorded(16, false, sale("a", "victim", 2, 3, 15), refused)
	h.Run.Scenario = "holder-dies"
	windows := timeline.Scenario(h, 0, "", &timeline.Fault{After: 10 * time.Millisecond, Text: "the victim is killed"})
	want := timeline.Shade{Start: 10 * ms, End: 30 * ms, Text: "the victim is killed"}
	if got := windows[0].Shaded; len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestALongScenarioShowsWhatIsNearItsFault(t *testing.T) {
	t.Parallel()
	h := recorded(400, false, inTurn(400)...)
	h.Run.Scenario = "starvation"
	w := timeline.Scenario(h, 0, "r", &timeline.Fault{After: 500 * time.Millisecond})[0]
	checkLayout(t, w)
	if len(w.Sections) != timeline.MaxSections || w.Omitted != 400-timeline.MaxSections {
		t.Errorf("%d sections, %d omitted", len(w.Sections), w.Omitted)
	}
	if w.From > 500*ms || w.To < 510*ms {
		t.Errorf("the window is from %d to %d", w.From, w.To)
	}
}

// random is a history of two items that nobody excludes from each other.
func random(seed uint64, n int) *history.History {
	r := rand.New(rand.NewPCG(seed, 1))
	h := recorded(int64(n), true)
	h.Run.Initial[2] = int64(n)
	for i := range n {
		enter := r.Int64N(int64(n) * 3)
		op := sale(fmt.Sprintf("r%d", i), []string{"a", "b"}[r.IntN(2)], 1+enter, 2+enter+r.Int64N(12), int64(i))
		op.GoodsID = 1 + r.Int64N(2)
		h.Ops = append(h.Ops, op)
	}
	return h
}

func TestNoSectionIsDrawnOverAnother(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		for _, w := range timeline.Around(random(seed, 120)) {
			checkLayout(t, w)
		}
	}
}
