package report

import "testing"

func TestBucketsHoldEveryLatencyOnce(t *testing.T) {
	t.Parallel()
	values := measurements{0, 900, 1_000, 1_500, 2_000, 1_000_000, 1_100_000, 3_000_000_000}
	b := values.buckets()
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
	if got := measurements(nil).buckets(); got != nil {
		t.Errorf("without latencies, the buckets are %v", got)
	}
}
