// Package explore executes every interleaving of a few requests, with at most a few faults between any two exchanges
// with a store, on the service as it sells, and finds the shortest one that breaks the stock, or shows that there is
// none.
//
//	Search     which schedules are to be executed: it knows neither requests nor stores
//	schedule   one of them while it is executed: who is at a step, who waits, who has ended
//	fault      what can strike between two steps, as data
//	lane       the servers and replicas on which one schedule after the other is executed
//	session    the schedules of one strategy and workload on a lane, and how each is judged
//
// A replica reaches its stores through the proxies of package wire, which hold each exchange until the search chooses
// it. Whether a step waits in MySQL is what MySQL says. Schedules are executed from the beginning each time (stateless
// model checking: Godefroid, VeriSoft, 1997), with a bound on preemptions (Musuvathi and Qadeer, 2007).
package explore

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

var httpClient = &http.Client{Timeout: 10 * time.Second}

// firstItem is below the ids of the explorer's items: neither loads nor fault scenarios use them.
const firstItem = 5_000_000

// Explorer has lanes on which strategies are explored.
type Explorer struct {
	// Workloads are the names of those that are executed; nil: all.
	Workloads []string
	// Faults are the names of those that strike; nil: all.
	Faults []string
	// Watch is called with what has been found so far, now and then, by one goroutine at a time; nil: it is not.
	Watch func(Result)
	// UntilRefuted stops the search of a strategy when one of its claims is refuted.
	UntilRefuted bool

	lanes    []*lane
	requests int
	subject  Subject // nil: strategies of the catalogue
	items    atomic.Int64
	watched  time.Time       // when Watch was called
	warm     map[string]bool // strategies that need no warm-up any more
}

// Options are those of Start.
type Options struct {
	Lanes    int     // how many schedules are executed side by side, each on servers of its own
	Requests int     // 2 or 3
	Subject  Subject // what is explored; nil: strategies of the catalogue
	// Pause is the longest time for which a Subject does nothing although it could go on, such as between two tries for a
	// lock.
	Pause time.Duration
}

// Start starts lanes beside the servers of a topology. Close the Explorer before they stop.
func Start(ctx context.Context, t *topology.Topology, o Options) (*Explorer, error) {
	x := &Explorer{lanes: make([]*lane, o.Lanes), requests: o.Requests, subject: o.Subject, warm: map[string]bool{}}
	items := func() int64 { return firstItem + x.items.Add(1) }
	group, starting := errgroup.WithContext(ctx)
	for i := range x.lanes {
		group.Go(func() (err error) {
			x.lanes[i], err = startLane(starting, t, fmt.Sprintf("lane-%d", i+1), o, items)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		x.Close()
		return nil, fmt.Errorf("start the servers of the exploration: %w", err)
	}
	x.watch(ctx)
	return x, nil
}

// watch waits for what the processes of a Subject do without a request.
func (x *Explorer) watch(ctx context.Context) {
	isProcess := func(r *replica) bool { return r.Replica != nil }
	if x.subject != nil && slices.ContainsFunc(x.lanes[0].replicas, isProcess) {
		select {
		case <-time.After(watchTime):
		case <-ctx.Done():
		}
	}
	for _, l := range x.lanes {
		l.mu.Lock()
		l.watching = false
		l.mu.Unlock()
	}
}

// watchTime is that of most jobs which a service repeats.
const watchTime = time.Second

// Close stops the lanes.
func (x *Explorer) Close() {
	group := errgroup.Group{}
	for _, l := range x.lanes {
		if l != nil {
			group.Go(func() error { l.stop(); return nil })
		}
	}
	_ = group.Wait()
}

// claimKind is the claim of the catalogue that a fault tests.
type claimKind int

const (
	claimNone claimKind = iota // nothing is claimed
	claimCorrect
	claimCrash
	claimLate
	claimRetry
	claimRestock
	claimLimit
	claimSet
)

// Explore executes every schedule of a strategy within the bounds. If ctx ends, it returns what it has.
func (x *Explorer) Explore(
	ctx context.Context, choice scenario.Choice, bounds Bounds, progress func(int),
) (Result, error) {
	began := time.Now()
	r := Result{Strategy: choice.Strategy.Name, Store: choice.Store, Control: choice.Strategy.Control, Exhausted: true}
	r.Own, r.Requests, r.Bounds, r.Random = x.subject != nil, x.requests, bounds.Effective(), bounds.Random
	cells := map[string]*Cell{}
	if err := x.warmUp(ctx, choice); err != nil {
		return r, err
	}
	workloads := x.workloads(choice)
	for _, w := range workloads {
		beginning, schedules := time.Now(), map[string]int{}
		r.Workloads = append(r.Workloads, Workload{Name: w.name, Title: w.title, Schedules: schedules})
		search := &Search{Bounds: bounds, Found: func(s Schedule) {
			s.Token = w.name + ":" + s.Token
			schedules[strings.Join(s.Outcome.Faults, "+")]++
			collect(cells, w.claim, s)
			if progress != nil {
				progress(total(cells))
			}
			x.show(r, cells, func(c *Cell) { judgeCell(c, choice.Strategy, false) })
		}, Settled: func(faults []string) bool {
			return x.UntilRefuted && refuted(choice.Strategy, cells) || settled(choice.Strategy, cells, w.claim, faults)
		}}
		search.Bounds.Duration /= time.Duration(len(workloads))
		tally, err := search.Run(ctx, x.systems(choice, w, x.faults(choice.Strategy, w, bounds)))
		r.Tally.Add(tally)
		r.Workloads[len(r.Workloads)-1].Took = time.Since(beginning)
		if err != nil {
			if ctx.Err() == nil {
				return r, fmt.Errorf("explore %s: %w", choice.Strategy.Name, err)
			}
			break
		}
	}
	if x.UntilRefuted && refuted(choice.Strategy, cells) {
		r.Tally.Waiting, r.Tally.Settled = r.Tally.Waiting+r.Tally.Settled, 0
	}
	r.Exhausted = !r.Random && r.Tally.Waiting == 0 && r.Tally.Diverged == 0 && ctx.Err() == nil
	r.Cells = judged(cells, func(c *Cell) { judgeCell(c, choice.Strategy, r.Exhausted) })
	r.Took = time.Since(began)
	return r, ctx.Err()
}

// judged returns the cells in their order. They do not change any more.
func judged(cells map[string]*Cell, judge func(*Cell)) (list []Cell) {
	for _, name := range slices.Sorted(maps.Keys(cells)) {
		c := *cells[name]
		c.Kinds, c.Shortest = maps.Clone(c.Kinds), maps.Clone(c.Shortest)
		judge(&c)
		list = append(list, c)
	}
	return list
}

// watchInterval is the least time between two calls of Explorer.Watch.
const watchInterval = 100 * time.Millisecond

// show calls Watch, if it is time.
func (x *Explorer) show(r Result, cells map[string]*Cell, judge func(*Cell)) {
	if x.Watch == nil || time.Since(x.watched) < watchInterval {
		return
	}
	x.watched = time.Now()
	r.Tally.Schedules, r.Exhausted, r.Cells = total(cells), false, judged(cells, judge)
	x.Watch(r)
}

func total(cells map[string]*Cell) (n int) {
	for _, c := range cells {
		n += c.Schedules
	}
	return n
}

// workloads lists what is asked for.
func (x *Explorer) workloads(choice scenario.Choice) []workload {
	all := workloadsOf(x.requests)
	if x.subject != nil {
		all = x.subject.workloads(x.requests)
	}
	return slices.DeleteFunc(slices.Clone(all), func(w workload) bool {
		return w.applies != nil && !w.applies(choice.Strategy, choice.Store) ||
			x.Workloads != nil && !slices.Contains(x.Workloads, w.name)
	})
}

func (x *Explorer) systems(choice scenario.Choice, w workload, faults []fault) (systems []System) {
	for _, l := range x.lanes {
		systems = append(systems, &session{
			lane: l, strategy: choice.Strategy, store: choice.Store, workload: w, faults: faults,
		})
	}
	return systems
}

// faults returns those that can strike in a workload.
func (x *Explorer) faults(s scenario.Strategy, w workload, bounds Bounds) []fault {
	if bounds.Faults == 0 {
		return nil
	}
	return slices.DeleteFunc(w.strikes(s), func(f fault) bool {
		return x.Faults != nil && !slices.Contains(x.Faults, f.name)
	})
}

// warmUp has every replica sell, so that no schedule is the first to load a script or to open a connection.
func (x *Explorer) warmUp(ctx context.Context, choice scenario.Choice) error {
	name := choice.Strategy.Name + " on " + choice.Store
	if x.warm[name] {
		return nil
	}
	x.warm[name] = true
	group, warming := errgroup.WithContext(ctx)
	for _, l := range x.lanes {
		s := &session{lane: l, strategy: choice.Strategy, store: choice.Store}
		group.Go(func() error { return s.warmUp(warming) })
	}
	return group.Wait()
}

// cellName names the cell of some faults, in workloads that test a claim.
func cellName(claim claimKind, faults string) string {
	if claim == claimLimit {
		return faults + "@" + LimitedBuyer
	}
	return faults
}

// LimitedBuyer are requests of one buyer, who may have fewer units than they ask for.
const LimitedBuyer = "limit per buyer"

// collect adds a schedule of a workload that tests a claim to the cell of its faults.
func collect(cells map[string]*Cell, claim claimKind, s Schedule) {
	faults := strings.Join(s.Outcome.Faults, "+")
	name := cellName(claim, faults)
	c := cells[name]
	if c == nil {
		c = &Cell{Fault: faults, Kinds: map[string]int{}, Shortest: map[string]Schedule{}}
		if claim == claimLimit {
			c.Requests = LimitedBuyer
		}
		cells[name] = c
	}
	c.Schedules++
	c.Kinds[s.Outcome.Kind]++
	if s.Outcome.Waited {
		c.Waited++
	}
	if s.Outcome.Kind == Right {
		return
	}
	if best, found := c.Shortest[s.Outcome.Kind]; !found || shorter(s, best) {
		c.Shortest[s.Outcome.Kind] = s
	}
}

// shorter reports whether a schedule is easier to read than another one.
func shorter(s, o Schedule) bool {
	if s.Preemptions != o.Preemptions {
		return s.Preemptions < o.Preemptions
	}
	if len(s.Outcome.Steps) != len(o.Outcome.Steps) {
		return len(s.Outcome.Steps) < len(o.Outcome.Steps)
	}
	return s.Token < o.Token
}

// Names lists the names of the workloads.
func Names() (names []string) {
	for _, w := range slices.Concat(workloads, threeRequests) {
		names = append(names, w.name)
	}
	return names
}

// Replay executes the schedule of a token for a strategy.
func (x *Explorer) Replay(ctx context.Context, choice scenario.Choice, token string) (Outcome, error) {
	name, labels, found := strings.Cut(token, ":")
	w, ok := known(name)
	if !found || !ok {
		return Outcome{}, fmt.Errorf("%q is no token: one begins with %s, as loadtest explore prints it", token,
			"the name of a workload and a colon, such as enough:")
	}
	if len(w.requests) > x.requests {
		return Outcome{}, fmt.Errorf("the token is of a schedule with %d requests: replay it with --requests %[1]d",
			len(w.requests))
	}
	if err := x.warmUp(ctx, choice); err != nil {
		return Outcome{}, err
	}
	return Replay(ctx, x.systems(choice, w, w.strikes(choice.Strategy))[0], labels)
}

// expects returns what the catalogue claims about schedules in which a fault strikes, in words, and whether some of
// them must, or may, do damage. The words are empty if it claims nothing. requests is that of a Cell.
func expects(s scenario.Strategy, requests, faults string) (words string, must, may bool) {
	claim := s.ClaimFor(2, false)
	if requests == LimitedBuyer && s.Claim.BuyerLimit == "exceeded" {
		if faults == "" {
			return "limit " + s.Claim.BuyerLimit, true, false
		}
		return "", false, true
	}
	if faults == "" {
		return claim, claim != verify.ClaimCorrect, false
	}
	at := slices.IndexFunc(faultTable, func(f fault) bool { return f.name == faults })
	if claim != verify.ClaimCorrect || at < 0 {
		return "", false, true
	}
	switch faultTable[at].claim {
	case claimSet:
		if !keepsStocksApart(s) {
			return "", false, true
		}
		return "keeps stocks apart", false, false
	case claimCorrect:
		return claim, false, false
	case claimLate:
		return s.Claim.LateWrite, s.Claim.LateWrite == verify.ClaimLosesUpdates, s.Claim.LateWrite == ""
	case claimRetry:
		return s.Claim.ClientRetry, s.Claim.ClientRetry == "deducts-again", s.Claim.ClientRetry == ""
	case claimRestock:
		claim = s.ClaimFor(2, true)
		return claim, claim != verify.ClaimCorrect, false
	case claimCrash:
		return s.Claim.HolderCrash, false, slices.Contains([]string{"loses-units", "blocks-forever"}, s.Claim.HolderCrash)
	}
	return "", false, true
}

// keepsStocksApart reports whether a strategy claims that what it has not done for a stock does not change a later one:
// sales on their way to MySQL, units that are held, and limits of buyers.
func keepsStocksApart(s scenario.Strategy) bool {
	return s.WriteBehind || len(s.Reservations) > 0 || s.Claim.BuyerLimit != ""
}

// judgeCell compares a cell with what the catalogue claims. A claim that something happens is refuted only if every
// schedule was executed and none shows it.
func judgeCell(c *Cell, s scenario.Strategy, exhausted bool) {
	words, must, may := expects(s, c.Requests, c.Fault)
	c.Claim = words
	c.Held = may || must && (c.Damaged() > 0 || !exhausted) || !must && c.Damaged() == 0
	switch words {
	case "loses-units":
		for kind := range c.Kinds {
			c.Held = c.Held && slices.Contains([]string{Right, Unjudged, Leaked, Undersold, SellsLess}, kind)
		}
	case "harmless", "rolls-back", "unlocks":
		c.Held = c.Held && c.Waited == 0
	case "blocks-until-lease-ends":
		c.Held = c.Held && (c.Waited > 0 || !exhausted || c.Fault != ReplicaDies)
	}
}

// refuted reports whether a claim is refuted already.
func refuted(s scenario.Strategy, cells map[string]*Cell) bool {
	for _, c := range cells {
		sofar := *c
		if judgeCell(&sofar, s, false); !sofar.Held {
			return true
		}
	}
	return false
}

// settled reports whether no more schedules are needed in which some faults strike: some damage was found, and the
// claim is one of damage, or nothing is claimed, or there is damage even without a fault.
func settled(s scenario.Strategy, cells map[string]*Cell, claim claimKind, faults []string) bool {
	name := strings.Join(faults, "+")
	if c := cells[cellName(claim, "")]; c != nil && name != "" && c.Damaged() > 0 {
		return true
	}
	c := cells[cellName(claim, name)]
	if c == nil {
		return false
	}
	words, must, _ := expects(s, c.Requests, name)
	return (must || words == "") && c.Damaged() > 0
}
