package report

import (
	"slices"
	"testing"

	"stock/loadtest/internal/history"
)

func TestBucketsHoldEveryLatencyOnce(t *testing.T) {
	t.Parallel()
	var h histogram
	values := []int64{0, 900, 1_000, 1_500, 2_000, 1_000_000, 1_100_000, 3_000_000_000}
	for _, ns := range values {
		h.add(ns)
	}
	b := h.buckets()
	var sum int64
	for _, n := range b.Counts {
		sum += n
	}
	if sum != int64(len(values)) {
		t.Errorf("the buckets hold %d latencies, want %d: %v", sum, len(values), b)
	}
	if b.First != 0 || b.Counts[0] != 3 || b.Counts[2] != 1 || b.Counts[4] != 1 {
		t.Errorf("1 µs, 1.5 µs and 2 µs must be in the buckets 0, 2 and 4: %v", b)
	}
	if last := len(b.Counts) - 1; b.Start(last) > 3000 || b.Start(last+1) < 3000 {
		t.Errorf("3 s is not in the last bucket, which begins at %v ms", b.Start(last))
	}
	if got := (&histogram{}).buckets(); got != nil {
		t.Errorf("without latencies, the buckets are %v", got)
	}
}

func TestSlicesOfARunHaveTheUnitsThatWereConfirmedInThem(t *testing.T) {
	t.Parallel()
	const second = int64(1e9)
	h := &history.History{
		End: &history.End{StartedNS: 0, EndedNS: 20 * second},
		Ops: []history.Op{
			{Kind: history.Deduct, ReceivedNS: 0, Count: 1, Outcome: history.Sold},
			{Kind: history.Deduct, ReceivedNS: second / 2, Count: 2, Outcome: history.Sold},
			{Kind: history.Deduct, ReceivedNS: second / 2, Count: 2, Outcome: history.SoldOut},
			{Kind: history.Deduct, ReceivedNS: second / 2, Count: 2, Outcome: history.Sold, Again: true},
			{Kind: history.Restock, ReceivedNS: second / 2, Count: 9, Outcome: history.Sold},
			{Kind: history.Order, ReceivedNS: 20 * second, Outcome: history.Sold, Lines: []history.Line{{Count: 2}, {Count: 3}}},
		},
	}
	want := make([]float64, slicesOfRun)
	want[0], want[slicesOfRun-1] = 3, 5
	if got := soldBySlice(h); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := soldBySlice(&history.History{}); got != nil {
		t.Errorf("a run without requests has the rates %v", got)
	}
}
