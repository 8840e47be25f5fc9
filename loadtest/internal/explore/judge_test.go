package explore

import (
	"testing"

	"stock/internal/contract"
	"stock/internal/must"
	"stock/loadtest/internal/explore/trace"
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

func TestWhatBecameOfKeysAndReservationsIsAskedAfterwards(t *testing.T) {
	t.Parallel()
	w, err := race("set 5a; hold 1a x k / sell 1a l / hold 1a y")
	must.Succeed(t, err)
	r := racing{session: &session{workload: w}, told: map[string]bool{"x": true}} // y was refused
	const looks = "look k\nfind x\nlook l\n"
	for want, rules := range map[string]contract.Rules{
		looks + "cancel k\ncancel l\n":                             {Keys: "mysql"},
		looks + "later 4m\nhold 1000a all-a\ncancel k\ncancel l\n": {Keys: "mysql", Holds: true},
		"find x\n": {},
	} {
		if got := r.inspections(rules).String(); got != want {
			t.Errorf("%+v: asked is\n%swant\n%s", rules, got, want)
		}
	}
}

func TestTheModelNamesTheDamage(t *testing.T) {
	t.Parallel()
	answer := func(got string, want ...string) *contract.MismatchError {
		return &contract.MismatchError{What: "answer", Got: got, Want: want}
	}
	stock := func(got, want string) *contract.MismatchError {
		return &contract.MismatchError{What: "stock of a in mysql", Got: got, Want: []string{want}}
	}
	apart := []contract.Stock{{Store: "redis", Item: 'a', Units: 1}, {Store: "mysql", Item: 'a', Units: 2}}
	for _, c := range []struct {
		wrong *contract.MismatchError
		left  []contract.Stock
		want  string
	}{
		{answer("9 remain", "8 remain"), nil, trace.LostUpdate},
		{answer("9 10 remain", "9 9 remain"), nil, trace.LostUpdate},
		{answer("7 remain", "8 remain"), nil, trace.Leaked},
		{answer("8 remain", "9 remain, replayed"), nil, trace.SoldTwice},
		{answer("sold out at 0", "1 remain"), nil, trace.Undersold},
		{answer("0 remain", "sold out at 0"), apart, trace.Oversold},
		{answer("cancelled 1a/1/1", "cancelled 1a/1/1, replayed"), nil, trace.OtherWrong},
		{stock("9", "8"), nil, trace.LostUpdate},
		{stock("7", "8"), nil, trace.Leaked},
		{stock("2", "1"), apart, trace.SellsLess},
	} {
		rules := contract.Rules{Store: "redis", Through: "mysql"}
		if got := damageOf(c.wrong, rules, c.left); got != c.want {
			t.Errorf("%v is %q, want %q", c.wrong, got, c.want)
		}
	}
}
