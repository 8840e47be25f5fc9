package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// workload is what the actors ask for.
type workload struct {
	name  string
	title string
	stock int64
	count []int64 // units that each request deducts
	// faults can strike. Where one request asks for more than there is, what matters is what the other one is told
	// meanwhile.
	faults bool
}

// workloads are those of a search. The first has stock for all; in the second, only one request can be sold; in the
// third, one request asks for more than there is.
var workloads = []workload{
	{name: "enough", title: "10 units; A buys 1, B buys 2", stock: 10, count: []int64{1, 2}, faults: true},
	{name: "last", title: "2 units; A buys 1, B buys 2", stock: 2, count: []int64{1, 2}, faults: true},
	{name: "too-many", title: "2 units; A buys 1, B asks for 3", stock: 2, count: []int64{1, 3}},
}

// session executes the schedules of one strategy and workload on a lane. It implements System.
type session struct {
	lane     *lane
	strategy scenario.Strategy
	store    string
	workload workload
	faults   []fault
}

// warmUp is not explored.
var warmUp = workload{stock: 1000, count: []int64{1, 1}}

// warmUp has each replica sell by itself, and all of them at the same time.
func (x *session) warmUp(ctx context.Context) error {
	item := x.lane.items()
	if err := x.setStock(ctx, item); err != nil {
		return err
	}
	actors := x.actors(item)
	for _, a := range actors {
		if _, err := a.send(ctx); err != nil {
			return err
		}
	}
	for range 3 {
		group, sending := errgroup.WithContext(ctx)
		for _, a := range actors {
			group.Go(func() error { _, err := a.send(sending); return err })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// Outcome is what came of a schedule.
type Outcome struct {
	Kind     string   `json:"kind"`               // see the constants
	Evidence []string `json:"evidence,omitempty"` // why
	Faults   []string `json:"faults,omitempty"`   // that struck
	Waited   bool     `json:"waited,omitempty"`   // nobody could go on until time had passed
	Workload string   `json:"workload"`
	Item     int64    `json:"item"`
	Steps    []Step   `json:"steps"`
}

// Kinds of Outcome.
const (
	Right      = "right"
	LostUpdate = "lost update" // confirmed units are still in stock
	Oversold   = "oversold"
	Undersold  = "undersold" // a request was refused although there was stock for it
	Leaked     = "leaked"    // units are gone that nobody has bought
	SoldTwice  = "sold twice"
	OtherWrong = "wrong"
	Deadlock   = "stuck"
	Unjudged   = "unjudged"
)

// requestTimeout is longer than that of the service.
const clientTimeout = 15 * time.Second

// Run implements System.
func (x *session) Run(ctx context.Context, choose func(Point) int) (Outcome, error) {
	item := x.lane.items()
	if err := x.setStock(ctx, item); err != nil {
		return Outcome{}, err
	}
	s := newSchedule(x.lane, x.faults, x.actors(item))
	began := monotonic.Now()
	x.lane.begin(s, item)
	gaveUp := false
	err := s.begin(ctx)
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
	x.lane.end(ctx, s)
	o := Outcome{Workload: x.workload.name, Item: item, Steps: s.steps, Faults: s.struck, Waited: s.waited}
	switch {
	case errors.Is(err, errStuck):
		o.Kind = Deadlock
		return o, nil
	case err != nil || gaveUp:
		return o, err
	}
	return x.judge(ctx, s, o, began)
}

func (x *session) setStock(ctx context.Context, item int64) error {
	desk := x.lane.replicas[replicasOfLane-1]
	service := scenario.Service{URL: desk.URL, Admin: desk.AdminURL, Client: httpClient}
	return service.SetStock(ctx, map[int64]int64{item: x.workload.stock})
}

func (x *session) actors(item int64) (actors []*actor) {
	send := func(n, at int, again bool) func(context.Context) (history.Op, error) {
		return func(ctx context.Context) (history.Op, error) {
			op := history.Op{
				Kind: history.Deduct, Name: fmt.Sprintf("explore-%d-%c", item, 'A'+n), GoodsID: item,
				Count: x.workload.count[n], Client: n, Again: again && x.strategy.Idempotent,
			}
			load := traffic.Load{
				Strategy: x.strategy.Name, Store: x.store, Keys: x.strategy.Idempotent, Timeout: clientTimeout,
			}
			return traffic.SendOne(ctx, x.lane.replicas[at].URL, load, "", op)
		}
	}
	for n := range x.workload.count {
		actors = append(actors, &actor{name: string(rune('A' + n)), replica: n, first: true, send: send(n, n, false)})
	}
	late := replicasOfLane - 1
	restock := func(ctx context.Context) (history.Op, error) {
		op := history.Op{Kind: history.Restock, Name: fmt.Sprintf("explore-%d-restock", item), GoodsID: item, Count: 1}
		return traffic.RestockOne(ctx, x.lane.replicas[late].AdminURL, x.store, clientTimeout, op)
	}
	return append(actors,
		&actor{name: againName, replica: late, send: send(0, late, true)},
		&actor{name: restockName, replica: late, send: restock})
}

// begin starts the requests, one after the other, so that their first steps are the same in every schedule.
func (s *schedule) begin(ctx context.Context) error {
	for _, a := range s.actors {
		if a.first {
			s.start(ctx, a)
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge reads what the schedule left, and has it judged as a load is.
func (x *session) judge(ctx context.Context, s *schedule, o Outcome, began int64) (Outcome, error) {
	durable := x.strategy.Durable(x.store)
	stock := map[int64]int64{o.Item: x.workload.stock}
	h := history.History{Run: history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: x.strategy.Name, Store: x.store, Replicas: 2, Workload: history.Workload{Name: x.workload.name},
			},
			Round: 1,
		},
		Story: "explore", Claim: x.strategy.ClaimFor(2, false), Witness: history.WitnessOracle,
		OmitsRemaining: x.strategy.OmitsRemaining(), Keys: x.strategy.Idempotent,
		Ledger: x.strategy.Idempotent && durable == oracle.MySQL, Set: stock, Initial: stock,
	}}
	for _, a := range s.actors {
		if !a.started {
			continue
		}
		if a.err != nil {
			return o, a.err
		}
		if a.lost { // its client cannot know more
			a.op.Outcome = history.Unknown
		}
		h.Ops = append(h.Ops, a.op)
	}
	slices.SortFunc(h.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
	final, err := x.settled(ctx, durable, o.Item)
	if err != nil {
		return o, err
	}
	h.End = &history.End{StartedNS: began, EndedNS: monotonic.Now(), Final: final}
	if x.strategy.WriteThrough {
		if h.End.Seller, err = x.lane.oracle.Stock(ctx, x.store, []int64{o.Item}); err != nil {
			return o, err
		}
	}
	if h.Run.Ledger {
		if h.Ledger, err = x.lane.oracle.Ledger(ctx, fmt.Sprintf("explore-%d", o.Item)); err != nil {
			return o, err
		}
		h.End.LedgerRead = true
	}
	v := verify.Judge(&h)
	o.Kind, o.Evidence = kind(v), v.Evidence
	s.add(Step{Text: fmt.Sprintf("the store has %d of %d units", final[o.Item], x.workload.stock), Kind: Answers})
	o.Steps = s.steps
	return o, nil
}

// kind names the damage of a verdict.
func kind(v verify.Verdict) string {
	switch {
	case v.Result == verify.Correct:
		return Right
	case v.Result != verify.Wrong:
		return Unjudged
	case v.Duplicates > 0:
		return SoldTwice
	case v.LostUpdates > 0:
		return LostUpdate
	case v.Oversold > 0:
		return Oversold
	case v.Leaked > 0:
		return Leaked
	case v.Undersold > 0:
		return Undersold
	}
	return OtherWrong
}

// settled reads the stock. If the strategy writes behind, it waits until MySQL has caught up.
func (x *session) settled(ctx context.Context, durable string, item int64) (map[int64]int64, error) {
	deadline := time.Now().Add(writeBehindTime)
	for {
		stock, err := x.lane.oracle.Stock(ctx, durable, []int64{item})
		if err != nil || !x.strategy.WriteBehind || time.Now().After(deadline) {
			return stock, err
		}
		sold, err := x.lane.oracle.Stock(ctx, x.store, []int64{item})
		if err != nil || maps.Equal(stock, sold) {
			return stock, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// writeBehindTime is how long a strategy that writes behind may take.
const writeBehindTime = 10 * time.Second
