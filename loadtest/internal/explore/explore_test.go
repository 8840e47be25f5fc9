package explore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
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
	r.explorer, err = explore.Start(ctx, r.lab.Topology, explore.Options{Lanes: 2, Requests: 2})
	return r, err
})

var started atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if started.Load() {
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
	started.Store(true)
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// explored explores a strategy in a workload, with at most one of some faults, and fails the test unless every schedule
// was executed and judged.
func explored(t *testing.T, strategy, workload string, faults ...string) trace.Result {
	t.Helper()
	r := start(t)
	r.explorer.Workloads, r.explorer.Faults = []string{workload}, faults
	bounds := trace.Bounds{Preemptions: 2}
	if len(faults) > 0 {
		bounds = trace.Bounds{Preemptions: 1, Faults: 1}
	}
	result, err := r.explorer.Explore(t.Context(), r.choices[strategy], bounds)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Judged() {
		t.Errorf("%s: not every schedule was executed and judged: %+v", strategy, result.Tally)
	}
	return result
}

// cell returns what the schedules led to in which a fault struck.
func cell(t *testing.T, r trace.Result, fault string) trace.Cell {
	t.Helper()
	at := slices.IndexFunc(r.Cells, func(c trace.Cell) bool { return c.Fault == fault })
	if at < 0 {
		t.Fatalf("%s: no schedule had %q", r.Strategy, fault)
	}
	return r.Cells[at]
}

func wantDamage(t *testing.T, r trace.Result, fault, kind string) trace.Schedule {
	t.Helper()
	c := cell(t, r, fault)
	s, found := c.Shortest[kind]
	if !found {
		t.Errorf("%s: %q led to %v, want %s", r.Strategy, fault, c.Kinds, kind)
	}
	return s
}

func wantRight(t *testing.T, r trace.Result, faults ...string) {
	t.Helper()
	for _, c := range r.Cells {
		if c.Kinds[trace.Right] != c.Schedules && (faults == nil || slices.Contains(faults, c.Fault)) {
			t.Errorf("%s: %q led to %v in %d schedules", r.Strategy, c.Fault, c.Kinds, c.Schedules)
		}
	}
	for _, fault := range faults {
		cell(t, r, fault)
	}
}

func TestReadModifyWriteWithoutALockLosesAnUpdate(t *testing.T) {
	r := explored(t, "none", "enough")
	s := wantDamage(t, r, "", trace.LostUpdate)
	if s.Preemptions != 1 {
		t.Errorf("the shortest trace has %d preemptions, want 1: %s", s.Preemptions, s.Token)
	}
	if !r.Held() {
		t.Error("the claim is refuted that none loses updates")
	}
}

func TestAnAtomicUpdateIsAlwaysRight(t *testing.T) {
	r := explored(t, "update", "last", explore.LostReply, explore.LostRequest, explore.ReplicaDies)
	wantRight(t, r, "", explore.LostReply, explore.LostRequest, explore.ReplicaDies)
	if !r.Exhausted || !r.Held() {
		t.Errorf("the search was not exhausted, or a claim not held: %+v", r)
	}
}

// The write of a late holder needs no fault of its own: its lease ends, and all others go first.
func TestWhatNeedsAReplicaOfRedisIsNotExplored(t *testing.T) {
	r := start(t)
	for name, choice := range r.choices {
		obstacle := explore.Obstacle(choice.Strategy)
		if refused := obstacle != ""; refused != (name == "lock-redis-wait") {
			t.Errorf("%s: %q", name, obstacle)
		}
	}
}

func TestOnlyAFenceStopsTheWriteOfALateHolder(t *testing.T) {
	r := explored(t, "lock-redis-lua", "enough", explore.LeaseEnds)
	late := wantDamage(t, r, explore.LeaseEnds, trace.LostUpdate)
	sold, written := "", ""
	for _, step := range late.Outcome.Steps {
		if step.Kind == trace.Answers && sold == "" {
			sold = step.Actor
		}
		if strings.HasPrefix(step.Text, "UPDATE") {
			written = step.Actor
		}
	}
	if sold == written {
		t.Errorf("the last write is that of %s, who was answered first", sold)
	}
	wantRight(t, r, "")
	wantRight(t, explored(t, "lock-redis-fenced", "enough", explore.LeaseEnds), "", explore.LeaseEnds)
}

func TestLocksOfOtherServersEndToo(t *testing.T) {
	r := explored(t, "lock-etcd", "enough", explore.LeaseEnds, explore.ReplicaDies)
	wantRight(t, r, "", explore.LeaseEnds, explore.ReplicaDies)
	if cell(t, r, explore.ReplicaDies).Waited == 0 {
		t.Error("a replica that is cut off keeps no lock in etcd")
	}
	wantRight(t, explored(t, "lock-zookeeper", "enough", explore.LeaseEnds), "", explore.LeaseEnds)
	wantDamage(t, explored(t, "lock-redlock", "enough", explore.LeaseEnds), explore.LeaseEnds, trace.LostUpdate)
}

func TestASearchThatEndsWithARefutedClaimIsNotExhausted(t *testing.T) {
	r := start(t)
	r.explorer.Workloads, r.explorer.Faults, r.explorer.UntilRefuted = []string{"enough", "last"}, nil, true
	defer func() { r.explorer.UntilRefuted = false }()
	choice := r.choices["none"]
	choice.Strategy.Claim.TwoReplicas = "correct"
	result, err := r.explorer.Explore(t.Context(), choice, trace.Bounds{Preemptions: 2})
	if err != nil || result.Held() || result.Exhausted || result.Tally.Waiting == 0 {
		t.Errorf("%v: held %v, exhausted %v, %+v", err, result.Held(), result.Exhausted, result.Tally)
	}
}

// What the schedules of a strategy lead to without a fault, and with each of these faults: nothing wrong, unless damage
// is named.
func TestSchedulesLeadToWhatIsKnownOfAStrategy(t *testing.T) {
	const crash, again, late, set = explore.LostReply, explore.SentAgain, explore.LeaseEnds, explore.StockSet
	keyed := []string{"update", "for-update", "batch", "redis-script", "redis-watch"}
	for _, c := range []struct {
		strategies []string
		workload   string
		fault      string // empty: none
		damage     string // empty: the schedules with the fault are right
	}{
		{[]string{"lock-mysql-getlock", "lock-mysql-row"}, "enough", late, trace.LostUpdate},
		{[]string{"lock-redis-setnx"}, "enough", explore.KeyGone, trace.LostUpdate},
		{[]string{"update"}, "one-order", crash, ""},
		{[]string{"update", "lock-redis-fenced"}, "orders", "", ""},
		{append([]string{"lock-redis-lua"}, keyed...), "same-key", crash, ""},
		{append([]string{"lock-redis-lua"}, keyed...), "one-key", again, ""},
		{append([]string{"lock-redis-lua"}, keyed...), "two-keys", "", ""},
		{[]string{"update"}, "same-order", "", ""},
		{keyed, "cancel-sale", crash, ""},
		{keyed, "sold-again", "", ""},
		{[]string{"lock-redis-lua", "redis-stream"}, "cancel-sale", "", ""},
		{[]string{"reserve"}, "confirm", explore.TimeOver, ""},
		{[]string{"reserve"}, "hold", set, ""},
		{[]string{"reserve"}, "same-hold", explore.TimeOver, ""},
		{[]string{"reserve"}, "enough", explore.ReplicaDies, ""},
		// A late write overwrites a stock that was set, unless the sale is recorded with the epoch of its stock.
		{[]string{"lock-redis-lua"}, "one", set, trace.LostUpdate},
		{[]string{"lock-redis-lua"}, "one", explore.Restocked, trace.Leaked},
		{[]string{"lock-redis-lua"}, "one-key", set, ""},
		{[]string{"update"}, "one", set, ""},
		{[]string{"update"}, "one", explore.Restocked, ""},
	} {
		for _, strategy := range c.strategies {
			var faults []string
			if c.fault != "" {
				faults = []string{c.fault}
			}
			r := explored(t, strategy, c.workload, faults...)
			if c.damage != "" {
				wantDamage(t, r, c.fault, c.damage)
			} else {
				wantRight(t, r)
				cell(t, r, c.fault)
			}
		}
	}
}

func TestARequestWithoutAKeySellsTwiceIfItIsSentAgain(t *testing.T) {
	for _, strategy := range []string{"update", "redis-script"} {
		r := explored(t, strategy, "one", explore.SentAgain)
		wantDamage(t, r, explore.SentAgain, trace.SoldTwice)
		if !r.Held() {
			t.Errorf("%s: a claim about requests without a key is refuted", strategy)
		}
	}
}

func TestAStrategyThatIsWrongNeedNotBeWrongWithAKey(t *testing.T) {
	if r := explored(t, "mutex", "same-key"); !r.Held() {
		t.Errorf("a claim about requests without a key is refuted: %+v", r.Cells)
	}
}

func TestALimitHolds(t *testing.T) {
	wantRight(t, explored(t, "update", "limit"), "")
	exceeds := explored(t, "update-check-first", "limit")
	wantDamage(t, exceeds, "", trace.OverLimit)
	if !exceeds.Held() || exceeds.Cells[0].Requests != explore.LimitedBuyer {
		t.Errorf("a limit that is exceeded as claimed: %+v", exceeds.Cells)
	}
}

func TestALimitIsThatOfThePresentStock(t *testing.T) {
	r := start(t)
	wantRight(t, explored(t, "update", "limit-later", explore.StockSet), explore.StockSet)
	token := "limit-later:A.A.A.A.!set" + strings.Repeat(".D", 9)
	o, err := r.explorer.Replay(t.Context(), r.choices["update"], token)
	if err != nil {
		t.Fatal(err)
	}
	var answers []string
	for _, step := range o.Steps {
		if step.Kind == trace.Answers && step.Actor != "" {
			answers = append(answers, step.Actor+" "+step.Text)
		}
	}
	// That a transaction is committed three times with the same answer is no poll.
	if want := []string{"A sold", "admin sold", "A sold"}; !slices.Equal(answers, want) {
		t.Errorf("the answers are %q, want %q", answers, want)
	}
}

func TestWhatFollowsTheAnswerBelongsToTheSchedule(t *testing.T) {
	r := start(t)
	const token = "one:A.A.A.A.A.A.A.A.A" // the buyer is answered after the fifth, and then the sale is written to MySQL
	o, err := r.explorer.Replay(t.Context(), r.choices["redis-stream"], token)
	if err != nil || o.Kind != trace.Right {
		t.Errorf("%s: %s %q, %v", token, o.Kind, o.Evidence, err)
	}
}

func TestAPromotedReplicaLosesASaleThatOnlyRedisKnows(t *testing.T) {
	r := explored(t, "redis-script", "enough", explore.Promoted)
	wantDamage(t, r, explore.Promoted, trace.LostUpdate)
	if !r.Held() {
		t.Error("a fault about which the catalogue claims nothing refutes a claim")
	}
}

func TestAReplayRepeatsTheSchedule(t *testing.T) {
	replayed := 0
	for _, c := range []struct {
		strategy, workload string
		faults             []string
	}{
		{"none", "enough", nil},
		{"none", "last", []string{explore.Restocked}},
		{"none", "one", []string{explore.Restocked, explore.SentAgain, explore.StockSet}},
		{"decrement", "last", nil},
		{"mutex", "enough", nil},
		{"optimistic-timestamp", "enough", nil},
		{"lock-redis-lua", "enough", []string{explore.LeaseEnds}},
		{"lock-redis-lua", "one", []string{explore.Restocked, explore.SentAgain, explore.StockSet}},
		{"lock-redis-setnx", "enough", []string{explore.KeyGone}},
		{"redis-script", "enough", []string{explore.Promoted}},
		{"redis-script", "one", []string{explore.SentAgain}},
		{"decrement", "one", []string{explore.SentAgain}},
		{"update-check-first", "limit", nil},
	} {
		for _, found := range explored(t, c.strategy, c.workload, c.faults...).Cells {
			for kind, s := range found.Shortest {
				replay(t, c.strategy, s, kind)
				replayed++
			}
		}
	}
	if replayed < 15 {
		t.Errorf("%d schedules were replayed, want 15", replayed)
	}
}

// replay executes a schedule five times, which must do the same damage by the same steps.
func replay(t *testing.T, strategy string, s trace.Schedule, kind string) {
	t.Helper()
	r := start(t)
	for range 5 {
		o, err := r.explorer.Replay(t.Context(), r.choices[strategy], s.Token)
		if err != nil {
			t.Fatalf("%s %s: %v", strategy, s.Token, err)
		}
		if o.Kind != kind || shape(o) != shape(s.Outcome) {
			t.Errorf("%s %s: %s:\n%s\nand it was %s:\n%s", strategy, s.Token, o.Kind, shape(o), kind, shape(s.Outcome))
		}
	}
}

// shape is what is the same in all executions of a schedule: the steps of each actor, and what was answered.
func shape(o trace.Outcome) string {
	lines := map[string]string{}
	for _, step := range o.Steps {
		if step.Kind == trace.Passes || step.Kind == trace.Polls || step.Actor == "" {
			continue
		}
		text, _, _ := strings.Cut(step.Text, " ")
		line := fmt.Sprintln(step.Actor, step.Kind, text)
		if !strings.HasSuffix(lines[step.Actor], line) { // how often somebody polls depends on the time
			lines[step.Actor] += line
		}
	}
	return fmt.Sprint(lines)
}
