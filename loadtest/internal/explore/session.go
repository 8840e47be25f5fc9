package explore

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/contract"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
)

// session executes the schedules of one strategy and workload on a lane. It implements System.
type session struct {
	lane     *lane
	strategy load.Strategy
	store    string
	workload workload
	faults   []fault
}

// warmUp has each replica take a request of each kind, without a key and with one. It is not explored.
func (x *session) warmUp(ctx context.Context) error {
	for _, special := range []string{"", WithKey} {
		x.workload = workload{stock: []int64{1000, 1000}, requests: []request{buy(1)}, special: special}
		if err := x.takeAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// takeAll has each replica take a request of each kind by itself, and all of them at the same time.
func (x *session) takeAll(ctx context.Context) error {
	items := x.newItems()
	if err := x.setStock(ctx, items); err != nil {
		return err
	}
	if own, ok := x.lane.subject.(Service); ok {
		if err := own.try(ctx, x.lane); err != nil {
			return err
		}
	}
	var clients []client
	if x.lane.subject == nil {
		clients = append(clients, x.restock(items[0]))
	}
	asking := x.newRacing(items)
	for at := range x.lane.replicas {
		clients = append(clients, x.client(items, at, at, buy(1)))
		if takesHolds(x.strategy, x.store) {
			clients = append(clients, asking.client("", at, reserveAndConfirm...))
		}
		if takesOrders(x.strategy, x.store) {
			clients = append(clients, asking.client("", at, oneOfEach))
		}
	}
	for _, atOnce := range []int{1, -1, -1, -1} {
		group, sending := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, send := range clients {
			group.Go(func() error { _, err := send(sending, quietly); return err })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// What each replica is asked before the first schedule.
var (
	reserveAndConfirm = contract.Script{
		{Verb: contract.Hold, Name: "x", Lines: []contract.Line{{Item: 'a', Count: 1}}}, {Verb: contract.Confirm, Name: "x"},
	}
	oneOfEach = contract.Request{
		Verb: contract.Order, Lines: []contract.Line{{Item: 'a', Count: 1}, {Item: 'b', Count: 1}},
	}
)

func quietly(string) {}

// keyed reports whether the requests have keys. A key is filled into all requests of a user's service.
func (x *session) keyed() bool {
	return x.strategy.Idempotent && (x.workload.special == WithKey || x.lane.subject != nil)
}

// clientTimeout is longer than that of the service.
const clientTimeout = 15 * time.Second

// Run implements System.
func (x *session) Run(ctx context.Context, try int, choose func(Point) int) (trace.Execution, error) {
	items, set := x.newItems(), time.Now()
	s, err := x.prepare(ctx, items)
	if err != nil {
		return trace.Execution{}, err
	}
	s.items, s.locks, s.quiet = items, x.strategy.Name+":", time.Duration(try)*s.quiet+x.lane.pause
	_, s.renewNothing = x.lane.subject.(*scripted)
	x.lane.begin(s, x.strategy.Needs, items)
	gaveUp := false
	err = s.begin(ctx)
	if err == nil {
		err = s.play(ctx, func(p Point) int {
			at := choose(p)
			gaveUp = gaveUp || at < 0
			return at
		})
	}
	if err != nil {
		for _, a := range s.actors {
			if a.hangUp != nil {
				a.hangUp()
			}
		}
	}
	took, ticked := time.Since(set), time.Now().Unix() > set.Unix()
	x.lane.end(ctx, s)
	if x.lane.failed != nil {
		return trace.Execution{}, x.lane.failed
	}
	if lost := x.reconnect(ctx, s); lost != nil {
		return trace.Execution{}, lost
	}
	o := trace.Execution{
		Workload: x.workload.name, Item: items[0], Stock: x.stockOf(items),
		Steps: s.trace(), Faults: s.struck, Waited: s.waited, Timed: ticked && took < time.Second/2,
	}
	nobody, isStuck := errors.AsType[stuck](err)
	switch {
	case isStuck:
		o.Kind, o.Evidence, err = trace.Deadlock, []string{nobody.Error()}, nil
	case err != nil || gaveUp:
		return o, err
	default:
		if s.race != nil {
			o, err = s.race.judge(ctx, s, o)
		} else {
			o, err = x.judge(ctx, s, o)
		}
		o = s.unjudged(o)
	}
	if x.workload.modelled && took > contract.HoldTime/2 {
		o.Timed = true
	}
	if took-s.idled > lease && o.Kind != trace.Right && x.strategy.Claim.HolderCrash == "blocks-until-lease-ends" {
		o.Timed = true
	}
	return o, err
}

// prepare sets the stock, or carries out what is before a race, and returns the schedule.
func (x *session) prepare(ctx context.Context, items []int64) (s *schedule, err error) {
	if !x.workload.modelled || x.lane.subject != nil {
		err := x.setStock(ctx, items)
		return newSchedule(x.lane, x.faults, x.actors(items)), err
	}
	r := x.newRacing(items)
	s = newSchedule(x.lane, x.faults, r.actors())
	s.race = r
	if err := r.begin(ctx, s); err != nil {
		return nil, err
	}
	s.made, err = x.lane.reservationIDs(ctx, items)
	return s, err
}

// reconnect has the replicas that were cut off sell, until they have a session at the servers of locks again. Whether
// they are ready does not show that.
func (x *session) reconnect(ctx context.Context, s *schedule) error {
	if !slices.ContainsFunc(x.strategy.Needs, func(need string) bool { return need == "etcd" || need == "zookeeper" }) {
		return nil
	}
	spare := *x
	spare.workload = workload{stock: []int64{1000}}
	for _, a := range s.actors {
		for sold := !a.lost; !sold && ctx.Err() == nil; {
			items := spare.newItems()
			if err := spare.setStock(ctx, items); err != nil {
				return err
			}
			answer, err := spare.client(items, a.replica, a.replica, buy(1))(ctx, quietly)
			if err != nil {
				return err
			}
			sold = answer.ops[0].Outcome == history.Sold
		}
	}
	return nil
}

func (x *session) setStock(ctx context.Context, items []int64) error {
	if x.lane.subject != nil {
		return errors.Join(x.lane.subject.setStock(ctx, x.lane, x.stockOf(items)), x.lane.learn(ctx))
	}
	return x.desk().SetStock(ctx, x.stockOf(items))
}

// desk is the replica at which the stock is set.
func (x *session) desk() load.Service {
	late := x.lane.replicas[x.lane.late()]
	return load.Service{URL: late.URL, Admin: late.AdminURL, Client: httpClient}
}

// newItems returns an item for each of the workload.
func (x *session) newItems() (items []int64) {
	for range x.workload.stock {
		items = append(items, x.lane.items())
	}
	return items
}

func (x *session) stockOf(items []int64) map[int64]int64 {
	stock := map[int64]int64{}
	for i, item := range items {
		stock[item] = x.workload.stock[i]
	}
	return stock
}
