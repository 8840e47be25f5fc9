// Package explore executes every interleaving of a few requests, with at most a few faults between any two exchanges
// with a store, on the service as it sells, and finds the shortest one that breaks the stock, or shows that there is
// none.
//
//	Search     which schedules are to be executed: it knows neither requests nor stores
//	schedule   one of them while it is executed: it waits until nobody goes on by itself, and lets one step happen
//	actor      what a request has done so far, and what it is about to do
//	fault      what can strike between two steps, as data
//	lane       the servers and replicas on which one schedule after the other is executed
//	replica    the gate at which its exchanges arrive
//	workload   what the requests ask for
//	session    the schedules of one strategy and workload on a lane, and how each is judged
//	racing     a race that is carried out in a schedule, which the model of the API judges
//	Subject    what is explored instead of strategies: a service of the user, or a script
//	claims     what must come of the schedules
//
// A replica reaches its stores through the proxies of package wire, which hold each exchange until the search chooses
// it. Whether a step waits in MySQL is what MySQL says. Schedules are executed from the beginning each time (stateless
// model checking: Godefroid, VeriSoft, 1997), with a bound on preemptions (Musuvathi and Qadeer, 2007).
package explore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/topology"
)

// httpClient waits for long: only what is stuck takes so much time, also on a busy machine.
var httpClient = &http.Client{Timeout: time.Minute}

// firstItem is below the ids of the explorer's items: neither loads nor fault scenarios use them.
const firstItem = 5_000_000

// Explorer has lanes on which strategies are explored.
type Explorer struct {
	// Workloads are the names of those that are executed; nil: all.
	Workloads []string
	// Faults are the names of those that strike; nil: all.
	Faults []string
	// Races is how many races are made up for each strategy on each store, from Seed, and explored, too.
	Races int
	Seed  uint64
	// Watch is called with what has been found so far, now and then, by one goroutine at a time; nil: it is not.
	Watch func(trace.Result)
	// UntilRefuted stops the search of a strategy when one of its claims is refuted.
	UntilRefuted bool

	lanes    []*lane
	until    time.Time // the end of a search; zero: it has none
	requests int
	subject  Subject           // nil: strategies of the catalogue
	server   *servers.Postgres // that was started; nil: none was
	items    atomic.Int64
	watched  time.Time       // when Watch was called
	warm     map[string]bool // strategies that need no warm-up any more
}

// Options are those of Start.
type Options struct {
	Lanes    int     // how many schedules are executed side by side, each on servers of its own
	Requests int     // 2 or 3
	Subject  Subject // what is explored; nil: strategies of the catalogue
	Postgres string  // address of a server for scripts, or PostgreSQL if one is to be started; empty: MySQL executes them
	// Pause is the longest time for which a Subject does nothing although it could go on, such as between two tries for
	// a lock.
	Pause time.Duration
}

// Start starts lanes beside the servers of a topology. Close the Explorer before they stop.
func Start(ctx context.Context, t *topology.Topology, o Options) (*Explorer, error) {
	var at topology.Addresses
	if o.Subject == nil {
		at = t.Addresses()
	}
	x := &Explorer{
		lanes: make([]*lane, o.Lanes), requests: o.Requests, subject: o.Subject, warm: map[string]bool{},
	}
	if own, ok := o.Subject.(Service); ok && own.OnPostgres() {
		o.Postgres = PostgreSQL
	}
	if o.Postgres == PostgreSQL {
		var err error
		if x.server, err = servers.StartPostgres(ctx, servers.PostgresOptions{Relaxed: true}); err != nil {
			return nil, err
		}
		o.Postgres = x.server.DSN("postgres")
	}
	items := func() int64 { return firstItem + x.items.Add(1) }
	group, starting := errgroup.WithContext(ctx)
	for i := range x.lanes {
		x.lanes[i] = &lane{items: items, subject: o.Subject, pause: o.Pause, postgres: o.Postgres, idle: map[string]bool{}}
		group.Go(func() error { return x.lanes[i].start(starting, t, fmt.Sprintf("lane-%d", i+1), at, o) })
	}
	if err := group.Wait(); err != nil {
		x.Close()
		return nil, fmt.Errorf("start the servers of the exploration: %w", err)
	}
	return x, nil
}

// Close stops the lanes.
func (x *Explorer) Close() {
	group := errgroup.Group{}
	for _, l := range x.lanes {
		group.Go(func() error { l.stop(); return nil })
	}
	_ = group.Wait()
	if x.server != nil {
		_ = x.server.Stop(context.Background()) // the process is gone in any case
	}
}

// Explore executes every schedule of a strategy within the bounds. If ctx ends, it returns what it has.
func (x *Explorer) Explore(ctx context.Context, choice load.Choice, bounds trace.Bounds) (trace.Result, error) {
	if err := x.warmUp(ctx, choice); err != nil {
		r := x.result(choice)
		err = noted(ctx, err, &r)
		return r, err
	}
	claims := ofStrategy{choice.Strategy, x.subject != nil}
	r, err := x.search(ctx, choice, x.workloads(choice), bounds, claims, cells{})
	if err == nil {
		r, err = x.shorten(ctx, choice, r, bounds, claims)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("explore %s: %w", choice.Strategy.Name, err)
	}
	return r, err
}

// result returns a result without schedules.
func (x *Explorer) result(choice load.Choice) trace.Result {
	return trace.Result{
		Strategy: choice.Strategy.Name, Store: choice.Store, Own: x.subject != nil,
		OtherStore: len(choice.Strategy.Stores) > 0 && choice.Store != choice.Strategy.Stores[0],
	}
}

// search executes every schedule of some workloads, and adds them to the cells.
func (x *Explorer) search(
	ctx context.Context, choice load.Choice, workloads []workload, bounds trace.Bounds, claims claims, all cells,
) (trace.Result, error) {
	began := time.Now()
	r := x.result(choice)
	r.Requests, r.Random = x.requests, bounds.Random
	hides, err := x.hides(ctx, choice, workloads)
	if err != nil {
		err = noted(ctx, err, &r)
		return r, err
	}
	bounds.NoReduction = bounds.NoReduction || hides
	r.Bounds = bounds.Effective()
	if s, ok := x.subject.(Service); ok {
		r.File = s.File
	}
	bounds.Duration /= time.Duration(max(len(workloads), 1))
	for _, w := range workloads {
		r.Workloads = append(r.Workloads, trace.Workload{Name: w.name, Title: w.title})
		search := &Search{Bounds: bounds, Found: func(s trace.Schedule) {
			s.Token = w.name + ":" + s.Token
			all.collect(w.special, s)
			if x.Watch != nil && time.Since(x.watched) > watchInterval {
				sofar := r
				x.watched = time.Now()
				sofar.Tally.Schedules, sofar.Cells = all.schedules(), all.judged(claims, false)
				x.Watch(sofar)
			}
		}, Settled: func(faults []string) bool {
			over := !x.until.IsZero() && time.Now().After(x.until)
			return over || x.UntilRefuted && all.refuted(claims) || claims.settled(all, w.special, strings.Join(faults, "+"))
		}}
		tally, err := search.Run(ctx, x.systems(choice, w, x.faults(choice.Strategy, w, bounds)))
		r.Tally.Add(tally)
		failed := noted(ctx, err, &r)
		if ctx.Err() != nil || err != nil && failed == nil {
			break
		}
		if failed != nil {
			return r, failed
		}
	}
	if x.UntilRefuted && all.refuted(claims) {
		r.Tally.Waiting, r.Tally.Settled = r.Tally.Waiting+r.Tally.Settled, 0
	}
	r.Exhausted = !r.Random && r.Tally.Waiting == 0 && r.Tally.Diverged == 0 && ctx.Err() == nil
	r.Cells, r.Took = all.judged(claims, r.Exhausted), time.Since(began)
	return r, ctx.Err()
}

// noted returns an error, unless a server did not answer in time: that a machine is busy, or something is stuck, says
// nothing about what is explored. It notes that in the result, which then ends with what was found.
func noted(ctx context.Context, err error, r *trace.Result) error {
	late, ok := errors.AsType[net.Error](err)
	if !ok || !late.Timeout() || ctx.Err() != nil {
		return err
	}
	r.Tally.Add(trace.Tally{Diverged: 1, Example: err.Error()})
	return nil
}

// Obstacle returns why a strategy cannot be explored; empty if it can. The lanes may lack a server that the lab has.
func Obstacle(s load.Strategy) string {
	if slices.Contains(s.Needs, "redis-replica") {
		return "explorations have no replica of Redis"
	}
	return s.Unavailable[s.Stores[0]]
}

// hides reports whether there are views, triggers or foreign keys where a Subject keeps its tables. What a statement
// touches is not in its text then. It returns true on PostgreSQL, where the text of statements is not parsed.
func (x *Explorer) hides(ctx context.Context, choice load.Choice, workloads []workload) (hides bool, err error) {
	if x.subject == nil || len(workloads) == 0 {
		return false, nil
	}
	l := x.lanes[0]
	s := &session{lane: l, strategy: choice.Strategy, store: choice.Store, workload: workloads[0]}
	if err := s.setStock(ctx, s.newItems()); err != nil { // a script makes its tables then
		return false, err
	}
	if l.postgres != "" {
		return true, nil
	}
	return hides, l.db.GetContext(ctx, &hides, `SELECT
		EXISTS (SELECT 1 FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()) OR
		EXISTS (SELECT 1 FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()) OR
		EXISTS (SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE())`)
}

// watchInterval is the least time between two calls of Explorer.Watch.
const watchInterval = 100 * time.Millisecond

// workloads lists what is asked for.
func (x *Explorer) workloads(choice load.Choice) []workload {
	all := workloadsOf(x.requests)
	if own, ok := x.subject.(Service); ok {
		all = own.workloads(x.requests)
	}
	for _, name := range x.Workloads {
		if w, ok := known(name); ok && isRace(name) {
			all = append(all, w)
		}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(w workload) bool {
		return !w.suits(choice.Strategy, choice.Store) || x.Workloads != nil && !slices.Contains(x.Workloads, w.name)
	})
	if x.subject != nil {
		return all
	}
	return append(all, madeUp(choice, x.Seed, x.Races, x.requests)...)
}

func (x *Explorer) systems(choice load.Choice, w workload, faults []fault) (systems []System) {
	for _, l := range x.lanes {
		systems = append(systems, &session{
			lane: l, strategy: choice.Strategy, store: choice.Store, workload: w, faults: faults,
		})
	}
	return systems
}

// faults returns those that can strike in a workload.
func (x *Explorer) faults(s load.Strategy, w workload, bounds trace.Bounds) []fault {
	if bounds.Faults == 0 {
		return nil
	}
	return slices.DeleteFunc(w.strikes(s), func(f fault) bool {
		return x.Faults != nil && !slices.Contains(x.Faults, f.name)
	})
}

// warmUp has every replica sell, so that no schedule is the first to load a script or to open a connection.
func (x *Explorer) warmUp(ctx context.Context, choice load.Choice) error {
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
	if err := group.Wait(); err != nil || x.subject == nil {
		return err
	}
	first := session{lane: x.lanes[0], strategy: choice.Strategy, workload: workload{stock: []int64{1000}}}
	goesOn, err := first.listen(ctx)
	for _, l := range x.lanes {
		l.goesOn = goesOn
	}
	return err
}

// OneByOne executes one schedule of each workload: each request has ended before the next one begins. It shows what a
// strategy sends.
func (x *Explorer) OneByOne(ctx context.Context, choice load.Choice) (trace.Result, []trace.Execution, error) {
	r := x.result(choice)
	if err := x.warmUp(ctx, choice); err != nil {
		return r, nil, err
	}
	var outcomes []trace.Execution
	for _, w := range x.workloads(choice) {
		o, err := Replay(ctx, x.systems(choice, w, nil)[0], "")
		if err != nil {
			return r, outcomes, err
		}
		r.Workloads = append(r.Workloads, trace.Workload{Name: w.name, Title: w.title})
		outcomes = append(outcomes, o)
	}
	return r, outcomes, nil
}

// Replay executes the schedule of a token for a strategy.
func (x *Explorer) Replay(ctx context.Context, choice load.Choice, token string) (trace.Execution, error) {
	name, labels, found := strings.Cut(token, ":")
	w, ok := known(name)
	if !found || !ok {
		return trace.Execution{}, fmt.Errorf("%q is no token: one begins with %s, as loadtest explore prints it", token,
			"the name of a workload and a colon, such as enough:")
	}
	if w.clients() > x.requests {
		return trace.Execution{}, fmt.Errorf("the token is of a schedule with %d requests: replay it with --requests %[1]d",
			w.clients())
	}
	if err := x.warmUp(ctx, choice); err != nil {
		return trace.Execution{}, err
	}
	return Replay(ctx, x.systems(choice, w, w.strikes(choice.Strategy))[0], labels)
}
