package explore

import (
	"testing"

	"stock/loadtest/internal/history"
)

func TestARequestBeginsWithItsFirstStepOrItsCriticalSection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entered, want int64
	}{{0, 50}, {60, 50}, {30, 30}, {5, 50}} { // sent at 10; executed at 50 and 70; answered at 90
		a := answers{ops: []history.Op{{SentNS: 10, ReceivedNS: 90, EnteredNS: c.entered}}}
		if a.delay([]int64{50, 70}); a.ops[0].SentNS != c.want {
			t.Errorf("entered at %d: begins at %d, want %d", c.entered, a.ops[0].SentNS, c.want)
		}
	}
}

func TestWhoKnowsNothingIsNotServed(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[history.Outcome]bool{
		history.Sold: true, history.SoldOut: true, history.Busy: false, history.Unknown: false,
	} {
		if a := (answers{ops: []history.Op{{Outcome: outcome}}}); a.served() != want {
			t.Errorf("%s: served %v, want %v", outcome, a.served(), want)
		}
	}
}
