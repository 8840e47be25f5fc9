package load

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

func TestJudgedWorkloadsOfEachStrategy(t *testing.T) {
	t.Parallel()
	claims := func(one, two string) Claim { return Claim{OneReplica: one, TwoReplicas: two} }
	correct := claims("correct", "correct")
	choices := []Choice{
		{Strategy{Name: "noop", Claim: claims("sells-nothing", "sells-nothing")}, "none"},
		{Strategy{Name: "none", Claim: claims("loses-updates", "loses-updates"), Orders: []string{"mysql"}}, "mysql"},
		{Strategy{Name: "mutex", Claim: claims("correct", "loses-updates")}, "mysql"},
		{Strategy{Name: "update", Claim: correct, Orders: []string{"mysql"}}, "mysql"},
		{Strategy{Name: "lock", Claim: correct, Orders: []string{"mysql"}}, "redis"},
		{Strategy{Name: "ledger", Claim: correct, Orders: []string{"mysql"}, Idempotent: true}, "mysql"},
		{Strategy{Name: "keys", Claim: correct, Idempotent: true}, "mysql"},
		{Strategy{Name: "gives-back", Claim: claims("undersells", "undersells")}, "redis"},
		{Strategy{Name: "holds", Claim: correct, Reservations: []string{"mysql"}}, "mysql"},
		{Strategy{Name: "holds", Claim: correct, Reservations: []string{"mysql"}}, "redis"},
	}
	got := func(replicas int, oneReplica bool) (found []string) {
		for _, row := range judgedRows(choices, replicas, oneReplica) {
			found = append(found, fmt.Sprintf("%s %s %d", row.Strategy, row.Workload.Name, row.Replicas))
			if row.Strategy == "ledger" && row.Lines == 0 && row.Workload.Name != Tail && row.Workload.Name != Cancellations {
				t.Errorf("%s has no orders", row.Label())
			}
		}
		return found
	}
	onTwo := []string{
		"update orders 2", "update tail 2", "lock tail 2", "ledger orders 2", "ledger retries 2", "ledger tail 2",
		"ledger cancellations 2", "keys retries 2", "keys tail 2", "keys cancellations 2", "gives-back rest 2",
		"holds tail 2", "holds reservations 2", "holds tail 2",
	}
	if rows := got(2, false); !slices.Equal(rows, onTwo) {
		t.Errorf("on two replicas: %q", rows)
	}
	if rows := got(2, true); !slices.Equal(rows, append([]string{"mutex tail 1"}, onTwo...)) {
		t.Errorf("on two replicas or one: %q", rows)
	}
	if rows := got(1, false); len(rows) != 1+len(onTwo) || rows[0] != "mutex tail 1" {
		t.Errorf("on one replica: %q", rows)
	}
}

func TestJudgedWorkloadsRunOnlyWithTheStandardOnes(t *testing.T) {
	t.Parallel()
	if !(Config{Hold: time.Second, Goods: 3, Rounds: 5}).Standard() {
		t.Error("not run with the standard workloads")
	}
	for _, config := range []Config{
		{Stock: 1}, {Sweep: Sweep{Axis: history.AxisUsers}}, {Rate: 1}, {Restock: 1}, {Duration: time.Second},
	} {
		if config.Standard() {
			t.Errorf("run with %+v", config)
		}
	}
}

func TestAStoreThatSetsOneUnitTooFewIsFound(t *testing.T) {
	t.Parallel()
	for _, s := range []*shop{
		{setWrong: map[string]int64{"mysql": 1}},
		{writesBehind: true, setWrong: map[string]int64{"redis": 1}},
		{writesBehind: true, setWrong: map[string]int64{"mysql": 1}},
	} {
		runner := s.open(t, Config{Requests: 100, Stock: 1000})
		runner.patience.limit = 50 * time.Millisecond
		m := runOne(t, runner)
		if m.Verdict.Result != verify.Wrong || m.Verdict.SetWrong == 0 {
			t.Errorf("%v: %s, %d units set wrong: %q", s.setWrong, m.Verdict.Result, m.Verdict.SetWrong, m.Verdict.Evidence)
		}
	}
}
