package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// units is the stock of a story's item. More than one client asks for one unit each, and none is refused.
const units = 10

// Stage is where one cell is played: an item of its own, the clients that ask for it, and the record of what happens.
type Stage struct {
	*Lab
	Strategy scenario.Strategy
	Store    string
	Item     int64

	company *company
	note    func(report.FaultStep) // called for each step; see Options.Step
	began   time.Time

	mu      sync.Mutex // guards what follows
	steps   []report.FaultStep
	proof   string
	run     history.Run
	ops     []history.Op
	blocked time.Duration
	never   bool // nobody could buy again
}

// Stepf records what happens.
func (s *Stage) Stepf(format string, args ...any) {
	step := report.FaultStep{After: time.Since(s.began), Text: fmt.Sprintf(format, args...)}
	s.mu.Lock()
	s.steps = append(s.steps, step)
	s.mu.Unlock()
	s.note(step)
}

// Provef records what shows that the fault struck. Without a proof, a cell is inconclusive.
func (s *Stage) Provef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.proof = text
	s.mu.Unlock()
	s.Stepf("proof: %s", text)
}

// Together lets a fault strike once for all cells that are played side by side.
func (s *Stage) Together(ctx context.Context, what string, strike func(context.Context) error) error {
	if err := s.company.together(ctx, strike); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.Stepf("%s", what)
	return nil
}

// order is a request of a client.
type order struct {
	client  string             // its name in the steps
	at      *topology.Isolated // the replica that it is sent to
	through string             // URL to send it to instead; empty: the replica's
	name    string             // empty: the client's
	again   bool
	count   int64  // units; 0: one
	pause   string // pause point; empty: none
}

// send sends a request and records it with its answer.
func (s *Stage) send(ctx context.Context, o order) (history.Op, error) {
	name := o.name
	if name == "" {
		name = o.client
	}
	url := o.through
	if url == "" {
		url = o.at.URL
	}
	load := traffic.Load{
		Strategy: s.Strategy.Name, Store: s.Store, Keys: s.Strategy.Idempotent, Timeout: clientTimeout,
	}
	op, err := traffic.SendOne(ctx, url, load, o.pause, history.Op{
		Kind: history.Deduct, Name: s.requestName(name), GoodsID: s.Item, Count: max(o.count, 1), Again: o.again,
	})
	if err != nil {
		return history.Op{}, err
	}
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	switch op.Outcome {
	case history.Sold:
		s.Stepf("%s has bought %d of the item, and is told that %d remain", o.client, op.Count, op.Remaining)
	case history.Unknown:
		s.Stepf("%s gets no answer: %s", o.client, op.Error)
	default:
		s.Stepf("%s is refused: %s", o.client, op.Error)
	}
	return op, nil
}

// requestName names a client's request. The item makes it unique.
func (s *Stage) requestName(client string) string { return fmt.Sprintf("story-%d-%s", s.Item, client) }

// pending is a request that was sent and is not answered yet.
type pending struct {
	request string
	done    chan struct{}
	op      history.Op
	err     error
}

// start sends a request in the background.
func (s *Stage) start(ctx context.Context, o order) *pending {
	p := &pending{request: s.requestName(o.client), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.op, p.err = s.send(ctx, o)
	}()
	return p
}

// wait waits for the answer.
func (p *pending) wait() error {
	<-p.done
	return p.err
}

// pausePoints lists the points at which a request can be parked, from the last to the first.
var pausePoints = []string{"before-commit", "before-write", "after-read", "after-lock"}

// park starts a request that stops at the last of the pause points that the strategy passes, and waits until it is
// there.
func (s *Stage) park(ctx context.Context, o order) (*pending, string, error) {
	for i, point := range pausePoints {
		attempt := o
		attempt.pause = point
		if i > 0 {
			attempt.client = fmt.Sprintf("%s%d", o.client, i)
		}
		p := s.start(ctx, attempt)
		parked, err := s.awaitParked(ctx, o.at, p)
		if err != nil {
			return nil, "", err
		}
		if parked {
			return p, point, nil
		}
	}
	return nil, "", errors.New("the strategy passes no pause point")
}

// awaitParked waits until a request is parked, or was answered instead.
func (s *Stage) awaitParked(ctx context.Context, at *topology.Isolated, p *pending) (bool, error) {
	for {
		point, err := s.parked(ctx, at, p.request)
		if err != nil || point != "" {
			return point != "", err
		}
		select {
		case <-p.done:
			return false, p.err
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// buy sends requests of a client until one is sold, and records how long the item was blocked since then. After limit,
// it gives up.
func (s *Stage) buy(ctx context.Context, o order, since time.Time, limit time.Duration) error {
	client := o.client
	for i := 1; ; i++ {
		op, err := s.send(ctx, o)
		if err != nil {
			return err
		}
		switch waited := time.Since(since); {
		case op.Outcome == history.Sold:
			s.blocked = waited
			return nil
		case waited > limit:
			s.blocked, s.never = waited, true
			s.Stepf("nobody could buy for %.1f s", waited.Seconds())
			return nil
		}
		o.client = fmt.Sprintf("%s%d", client, i)
	}
}

// open prepares the item.
func (s *Stage) open(ctx context.Context, story string) error {
	stock := map[int64]int64{s.Item: units}
	if err := s.Service.SetStock(ctx, stock); err != nil {
		return err
	}
	s.began = time.Now()
	claim := s.Strategy.ClaimFor(2, false)
	s.run = history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: s.Strategy.Name, Store: s.Store, Replicas: 2, Workload: history.Workload{Name: story},
			},
			Round: 1,
		},
		Story: story, Claim: claim, Control: s.Strategy.Control, Witness: history.WitnessOracle,
		OmitsRemaining: s.Strategy.OmitsRemaining(), Keys: s.Strategy.Idempotent,
		Ledger: s.Strategy.Idempotent && s.durable() == oracle.MySQL,
		Set:    stock,
	}
	initial, err := s.Oracle.Stock(ctx, s.durable(), []int64{s.Item})
	s.run.Initial = initial
	return err
}

// durable is the store in which a sale is durable.
func (s *Stage) durable() string {
	if s.Strategy.WriteBehind {
		return oracle.MySQL
	}
	return s.Store
}

// judge reads what the story left, and has it judged.
func (s *Stage) judge(ctx context.Context) (history.History, verify.Verdict, error) {
	h := history.History{Run: s.run, Ops: slices.SortedFunc(slices.Values(s.ops), func(a, b history.Op) int {
		return int(a.SentNS - b.SentNS)
	})}
	final, err := s.settled(ctx)
	if err != nil {
		return h, verify.Verdict{}, err
	}
	h.End = &history.End{StartedNS: h.Ops[0].SentNS, EndedNS: monotonic.Now(), Final: final}
	if s.run.Ledger {
		if h.Ledger, err = s.Oracle.Ledger(ctx, fmt.Sprintf("story-%d", s.Item)); err != nil {
			return h, verify.Verdict{}, err
		}
		h.End.LedgerRead = true
	}
	return h, verify.Judge(&h), nil
}

// settled reads the stock when it has stopped changing. A strategy that writes behind may still be at it.
func (s *Stage) settled(ctx context.Context) (map[int64]int64, error) {
	quiet := 50 * time.Millisecond
	if s.Strategy.WriteBehind {
		quiet = time.Second
	}
	last, since := int64(-1), time.Now()
	for {
		stock, err := s.Oracle.Stock(ctx, s.durable(), []int64{s.Item})
		if err != nil {
			return nil, err
		}
		if stock[s.Item] != last {
			last, since = stock[s.Item], time.Now()
		}
		if time.Since(since) >= quiet {
			return stock, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
