package explore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// rig is what the tests of the package share: two lanes, on which one test after the other explores.
type rig struct {
	lab      *lab.Lab
	explorer *explore.Explorer
	choices  map[string]scenario.Choice
}

var shared = sync.OnceValues(func() (r rig, err error) {
	ctx := context.Background()
	if r.lab, err = lab.Start(ctx, topology.Options{Replicas: 1, Relaxed: true}); err != nil {
		return r, err
	}
	catalogue, err := r.lab.Target.Strategies(ctx)
	if err != nil {
		return r, err
	}
	r.choices = map[string]scenario.Choice{}
	for _, s := range catalogue {
		r.choices[s.Name] = scenario.Choice{Strategy: s, Store: s.Stores[0]}
	}
	r.explorer, err = explore.Start(ctx, r.lab.Topology, 2, 2)
	return r, err
})

var started bool

func TestMain(m *testing.M) {
	code := m.Run()
	if started {
		r, _ := shared()
		if r.explorer != nil {
			r.explorer.Close()
		}
		if r.lab != nil {
			if err := r.lab.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	os.Exit(code)
}

func start(t *testing.T) rig {
	t.Helper()
	started = true
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// explored explores a strategy in some workloads, and fails the test unless every schedule was executed and judged.
func explored(t *testing.T, strategy string, bounds explore.Bounds, workloads ...string) explore.Result {
	t.Helper()
	r := start(t)
	r.explorer.Workloads = workloads
	result, err := r.explorer.Explore(t.Context(), r.choices[strategy], bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Judged() {
		t.Errorf("%s: not every schedule was executed and judged: %+v", strategy, result.Tally)
	}
	return result
}

// cell returns what the schedules led to in which a fault struck.
func cell(t *testing.T, r explore.Result, fault string) explore.Cell {
	t.Helper()
	at := slices.IndexFunc(r.Cells, func(c explore.Cell) bool { return c.Fault == fault })
	if at < 0 {
		t.Fatalf("%s: no schedule had %q", r.Strategy, fault)
	}
	return r.Cells[at]
}

func wantDamage(t *testing.T, r explore.Result, fault, kind string) explore.Schedule {
	t.Helper()
	c := cell(t, r, fault)
	s, found := c.Shortest[kind]
	if !found {
		t.Errorf("%s: %q led to %v, want %s", r.Strategy, fault, c.Kinds, kind)
	}
	return s
}

func wantRight(t *testing.T, r explore.Result, faults ...string) {
	t.Helper()
	for _, c := range r.Cells {
		if c.Kinds[explore.Right] != c.Schedules && (faults == nil || slices.Contains(faults, c.Fault)) {
			t.Errorf("%s: %q led to %v in %d schedules", r.Strategy, c.Fault, c.Kinds, c.Schedules)
		}
	}
	for _, fault := range faults {
		cell(t, r, fault)
	}
}

// noFaults and oneFault keep the tests fast.
var (
	noFaults = explore.Bounds{Preemptions: 2}
	oneFault = explore.Bounds{Preemptions: 1, Faults: 1}
)

func TestReadModifyWriteWithoutALockLosesAnUpdate(t *testing.T) {
	r := explored(t, "none", noFaults, "enough", "last")
	s := wantDamage(t, r, "", explore.LostUpdate)
	if s.Preemptions != 1 {
		t.Errorf("the shortest trace has %d preemptions, want 1: %s", s.Preemptions, s.Token)
	}
	if !r.Held() {
		t.Error("the claim is refuted that none loses updates")
	}
}

func TestAnAtomicUpdateIsAlwaysRight(t *testing.T) {
	r := explored(t, "update", oneFault, "enough", "last", "too-many", "orders")
	wantRight(t, r, "", explore.LostReply, explore.LostRequest, explore.ReplicaDies)
	if !r.Exhausted || r.Tally.Waiting > 0 {
		t.Errorf("not exhausted: %+v", r.Tally)
	}
}

func TestOnlyAFenceStopsTheWriteOfALateHolder(t *testing.T) {
	unfenced := explored(t, "lock-redis-lua", oneFault, "enough")
	wantDamage(t, unfenced, explore.LeaseEnds, explore.LostUpdate)
	wantRight(t, unfenced, "", explore.LostReply)
	wantRight(t, explored(t, "lock-redis-fenced", oneFault, "enough"), "", explore.LeaseEnds)
}

// A write that arrives after others have finished needs no fault of its own: the lease ends, and the others go first.
func TestALateWriteIsAmongTheInterleavings(t *testing.T) {
	s := wantDamage(t, explored(t, "lock-redis-lua", oneFault, "enough"), explore.LeaseEnds, explore.LostUpdate)
	var late []string
	for _, step := range s.Outcome.Steps {
		if step.Kind == explore.Answers && step.Actor != "" || strings.HasPrefix(step.Text, "UPDATE") {
			late = append(late, step.Actor+" "+step.Text[:4])
		}
	}
	answered := slices.IndexFunc(late, func(text string) bool { return strings.HasSuffix(text, "sold") })
	written := slices.IndexFunc(late[answered:], func(text string) bool {
		return strings.HasSuffix(text, "UPDA") && text[0] != late[answered][0]
	})
	if written < 0 {
		t.Errorf("nobody wrote after another was answered: %v", late)
	}
}

func TestAnOrderIsAllOrNothing(t *testing.T) {
	for _, strategy := range []string{"update", "lock-redis-fenced"} {
		r := explored(t, strategy, noFaults, "orders")
		wantRight(t, r, "")
	}
}

func TestAKeySellsOnce(t *testing.T) {
	wantRight(t, explored(t, "ledger", oneFault, "same-key"), "", explore.LostReply, explore.ReplicaDies)
	wantRight(t, explored(t, "ledger", noFaults, "same-order"), "")
	wantDamage(t, explored(t, "update", oneFault, "one"), explore.SentAgain, explore.SoldTwice)
}

func TestALimitHolds(t *testing.T) {
	wantRight(t, explored(t, "ledger", noFaults, "limit"))
	exceeds := explored(t, "ledger-check-first", noFaults, "limit")
	wantDamage(t, exceeds, "", explore.OverLimit)
	if !exceeds.Held() || exceeds.Cells[0].Requests != explore.LimitedBuyer {
		t.Errorf("a limit that is exceeded as claimed: %+v", exceeds.Cells)
	}
}

func TestReservationsEndOnce(t *testing.T) {
	r := explored(t, "reserve", oneFault, "confirm", "hold", "same-hold")
	wantRight(t, r, "", explore.TimeOver, explore.LostReply, explore.ReplicaDies, explore.StockSet)
}

func TestAPromotedReplicaLosesASaleThatOnlyRedisKnows(t *testing.T) {
	wantDamage(t, explored(t, "redis-script", oneFault, "enough"), explore.Promoted, explore.LostUpdate)
}

func TestAStockThatIsSetIsOverwrittenByALateWrite(t *testing.T) {
	wantDamage(t, explored(t, "lock-redis-lua", oneFault, "one"), explore.StockSet, explore.LostUpdate)
	wantRight(t, explored(t, "update", oneFault, "one"), explore.StockSet, explore.Restocked)
}

func TestAReplayRepeatsTheSchedule(t *testing.T) {
	tokens := map[string][]string{
		"none":              {"enough:A.B.A.B.A.B", "enough:A.A.B.B.A.B", "last:A.A.B.B.B.A"},
		"lock-redis-lua":    {"enough:", "enough:A.A.A.!lease", "one:A.A.A.!restock", "one:A.A.A.!set", "enough:A.A.B.A.B"},
		"lock-redis-fenced": {"enough:A.A.A.!lease.B", "enough:A.A.A#", "orders:", "orders:A.B.A.B"},
		"update":            {"enough:A.!again", "last:B.A", "enough:A~", "enough:A-", "orders:A.B"},
		"reserve":           {"confirm:A.A.!over", "confirm:A.B.A.B", "hold:A.A.!set", "same-hold:A.B.A.B"},
	}
	r := start(t)
	for strategy, list := range tokens {
		for _, token := range list {
			var first explore.Outcome
			for try := range 5 {
				o, err := r.explorer.Replay(t.Context(), r.choices[strategy], token)
				if err != nil {
					t.Fatalf("%s %s: %v", strategy, token, err)
				}
				if try == 0 {
					first = o
				} else if o.Kind != first.Kind || shape(o) != shape(first) {
					t.Errorf("%s %s: try %d was %s:\n%s\nand the first %s:\n%s", strategy, token, try, o.Kind, shape(o), first.Kind, shape(first))
				}
			}
		}
	}
}

// shape is what is the same in all executions of a schedule: who executes what kind of step, and what was answered.
func shape(o explore.Outcome) string {
	var b strings.Builder
	for _, step := range o.Steps {
		if step.Kind == explore.Passes || step.Kind == explore.Polls {
			continue
		}
		text, _, _ := strings.Cut(step.Text, " ")
		fmt.Fprintln(&b, step.Actor, step.Kind, text)
	}
	return b.String()
}
