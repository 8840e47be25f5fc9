package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// units is the stock of a story's item. It is enough for all clients. The strategy slots has one unit in each of its 16
// rows: a client that buys one unit finds it in any row, and one that buys two has to lock them all.
const units = 16

// Stage is where one cell is played: an item of its own, the clients that ask for it, and the record of what happens.
type Stage struct {
	*Deployment
	Strategy scenario.Strategy // or the practice
	Store    string
	Item     int64
	Story    string // the name of the scenario

	items   *atomic.Int64 // used so far
	company *company
	note    func(report.FaultStep) // called for each step; see Options.Step
	reading bool                   // Lab.Reading
	began   time.Time
	beganNS int64 // on the clock of the history

	background sync.WaitGroup // of what a story does while it goes on

	// Written by one goroutine at a time.
	run     history.Run
	blocked time.Duration
	never   bool        // nobody could buy again
	booked  atomic.Bool // the history has everything that happened to the stock since it was set

	mu     sync.Mutex // guards what follows
	steps  []report.FaultStep
	proof  string
	broken string // how the strategy broke its claim, if the stock does not show it
	ops    []history.Op
	calls  []history.Call
	reads  []period          // of those who read the steps, one after the other
	asking []*Asking         // in the order of asking
	owners map[string]string // the client that was seen to be the owner of a lock; empty: one that nobody knows
}

// period is a time in which somebody has read a step.
type period struct{ from, to time.Time }

// Stepf records what happens.
func (s *Stage) Stepf(format string, args ...any) { s.step(report.Event, fmt.Sprintf(format, args...)) }

func (s *Stage) step(kind report.StepKind, text string) {
	step := report.FaultStep{After: time.Since(s.began), Kind: kind, Text: text}
	s.mu.Lock()
	s.steps = append(s.steps, step)
	s.mu.Unlock()
	read := period{from: time.Now()}
	s.note(step)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.reads); n > 0 && s.reads[n-1].to.After(read.from) {
		read.from = s.reads[n-1].to // it has waited for the reader of another step
	}
	read.to = time.Now()
	s.reads = append(s.reads, read)
}

// between returns the time between two moments in which nobody has read a step.
func (s *Stage) between(since, until time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := until.Sub(since)
	for _, read := range s.reads {
		from, to := read.from, read.to
		if from.Before(since) {
			from = since
		}
		if to.After(until) {
			to = until
		}
		waited -= max(to.Sub(from), 0)
	}
	return waited
}

// Provef records what shows that the fault struck. Without a proof, a cell is inconclusive.
func (s *Stage) Provef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.proof = text
	s.mu.Unlock()
	s.step(report.Proof, proofPrefix+text)
}

// Failf records that the strategy did what it must not do, and that the stock does not show it. The cell is then
// unsafe.
func (s *Stage) Failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.broken = cmp.Or(s.broken, text)
	s.mu.Unlock()
	s.Stepf("%s", text)
}

// proofPrefix is how the step with the proof begins.
const proofPrefix = "proof: "

// Together lets a fault strike once for all cells that are played side by side.
func (s *Stage) Together(ctx context.Context, what string, strike func(context.Context) error) error {
	return s.together(ctx, report.Strike, what, strike)
}

// Mend ends a fault once for all cells that are played side by side.
func (s *Stage) Mend(ctx context.Context, what string, mend func(context.Context) error) error {
	return s.together(ctx, report.Mending, what, mend)
}

// together does something once for all cells that are played side by side.
func (s *Stage) together(
	ctx context.Context, kind report.StepKind, what string, do func(context.Context) error,
) error {
	if err := s.company.together(ctx, do); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.step(kind, what)
	return nil
}

// InTurn plays a part of the story that must not meet the same part of other cells.
func (s *Stage) InTurn(ctx context.Context, play func() error) error {
	s.company.turn.Lock()
	defer s.company.turn.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return play()
}

// order is a request of a client.
type order struct {
	client  string             // its name in the steps
	at      *topology.Isolated // the replica that it is sent to
	through string             // URL to send it to instead; empty: the replica's
	name    string             // empty: the client's
	again   bool
	count   int64          // units; 0: one
	pause   string         // pause point; empty: none
	lines   []history.Line // of an order of several items; it has no count
	limit   int64          // units that the client may have of the item; 0: any number
	before  bool           // the history begins after it; it has no key, or the ledger would have it
	timeout time.Duration  // how long the client waits for the answer; 0: clientTimeout
}

// send sends a request and records it with its answer.
func (s *Stage) send(ctx context.Context, o order) (history.Op, error) {
	if o.before {
		s.booked.Store(false)
	}
	op, err := s.exchange(ctx, o)
	if err != nil {
		return history.Op{}, err
	}
	if o.before {
		s.Stepf("%s is answered: %s", o.client, op.Outcome)
	} else {
		s.record(o.client, op)
	}
	return op, nil
}

// exchange is send without the record.
func (s *Stage) exchange(ctx context.Context, o order) (history.Op, error) {
	name := o.name
	if name == "" {
		name = o.client
	}
	url := o.through
	if url == "" {
		url = o.at.URL
	}
	load := traffic.Load{
		Strategy: s.Strategy.Name, Store: s.Store, Keys: s.Strategy.Idempotent && !o.before, Timeout: s.timeout(o),
	}
	request := history.Op{Kind: history.Deduct, GoodsID: s.Item, Count: max(o.count, 1)}
	if o.limit > 0 {
		request.Buyer, request.BuyerLimit = o.client, o.limit
	}
	if o.lines != nil {
		request = history.Op{Kind: history.Order, Lines: o.lines}
	}
	request.Name, request.Again = s.requestName(name), o.again
	replica := ""
	if o.at != nil {
		replica = o.at.Name
	}
	answered := s.asks(o.client, replica, request.Name)
	defer answered()
	return traffic.SendOne(ctx, url, load, o.pause, request)
}

// timeout is how long the client waits for the answer: longer than anybody reads, unless the story says when it ends.
func (s *Stage) timeout(o order) time.Duration {
	if s.reading && (o.timeout == 0 || o.timeout == patientTimeout) {
		return readersTimeout
	}
	return cmp.Or(o.timeout, clientTimeout)
}

// record adds a request with its answer to the history.
func (s *Stage) record(client string, op history.Op) {
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	switch {
	case op.Outcome == history.Sold && op.Kind == history.Order:
		s.Stepf("%s has bought what it ordered: %s", client, describeLines(op.Lines))
	case op.Outcome == history.Sold && op.OmitsRemaining:
		s.Stepf("%s has bought %d of the item", client, op.Count)
	case op.Outcome == history.Sold:
		s.Stepf("%s has bought %d of the item, and is told that %d remain", client, op.Count, op.Remaining)
	case op.Outcome == history.Unknown:
		s.Stepf("%s gets no answer: %s", client, op.Error)
	default:
		s.Stepf("%s is refused: %s", client, op.Error)
	}
}

// describeLines says what an order bought, and what remains.
func describeLines(lines []history.Line) string {
	parts := make([]string, len(lines))
	for i, line := range lines {
		parts[i] = fmt.Sprintf("%d of item %d, of which %d remain", line.Count, line.GoodsID, line.Remaining)
	}
	return strings.Join(parts, ", ")
}

// requestName names a client's request. The item makes it unique.
func (s *Stage) requestName(client string) string { return fmt.Sprintf("story-%d-%s", s.Item, client) }

// pending is a request that was sent and is not answered yet.
type pending struct {
	request string             // its name
	at      *topology.Isolated // where it is parked
	done    chan struct{}
	op      history.Op
	err     error
}

// start sends a request in the background.
func (s *Stage) start(ctx context.Context, o order) *pending {
	p := &pending{request: s.requestName(o.client), done: make(chan struct{})}
	s.inBackground(func() {
		defer close(p.done)
		p.op, p.err = s.send(ctx, o)
	})
	return p
}

// inBackground does a part of the story while the story goes on. It must end soon after its context.
func (s *Stage) inBackground(do func()) { s.background.Go(do) }

// wait waits for the answer.
func (p *pending) wait() error {
	<-p.done
	return p.err
}

// giveUp waits until the replica answers, which it does without being told if it finds its lease ended.
func (p *pending) giveUp(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		return fmt.Errorf("%s is still parked after %v: its replica has not given up", p.request, patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answered reports whether the answer has come.
func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// buy sends requests of a client until one is sold, and records how long the item was blocked since then. After
// patience, it gives up.
func (s *Stage) buy(ctx context.Context, o order, since time.Time) error {
	return s.buyWithin(ctx, o.client, since, patience, s.sends(ctx, o))
}

// buyWithin asks as untilSold does, and records that nobody could buy the item if nothing is sold within limit.
func (s *Stage) buyWithin(
	ctx context.Context, client string, since time.Time, limit time.Duration, ask func(client string) (history.Op, error),
) error {
	sold, err := s.untilSold(ctx, client, since, limit, ask)
	if err == nil && !sold {
		s.giveUp(since)
	}
	return err
}

// tryToBuy is buy for a story that goes on if nothing is sold within limit.
func (s *Stage) tryToBuy(ctx context.Context, o order, since time.Time, limit time.Duration) (sold bool, err error) {
	return s.untilSold(ctx, o.client, since, limit, s.sends(ctx, o))
}

// mustBuy sends a request that nothing keeps from being sold.
func (s *Stage) mustBuy(ctx context.Context, o order) error {
	op, err := s.send(ctx, o)
	if err == nil && op.Outcome != history.Sold {
		err = fmt.Errorf("client %s was not sold anything: %s", o.client, op.Error)
	}
	return err
}

// sends returns a function that sends a request for a client of another name.
func (s *Stage) sends(ctx context.Context, o order) func(client string) (history.Op, error) {
	return func(client string) (history.Op, error) {
		o.client = client
		return s.send(ctx, o)
	}
}

// untilSold asks until something is sold, each time with another client's name, and records how long the item was
// blocked since then. It reports whether something was sold within limit.
func (s *Stage) untilSold(
	ctx context.Context, client string, since time.Time, limit time.Duration, ask func(client string) (history.Op, error),
) (sold bool, err error) {
	name := client
	for i := 1; ; i++ {
		if ctx.Err() != nil {
			return false, ctx.Err() // a request whose context has ended has an unknown outcome, and no error
		}
		op, err := ask(name)
		if err != nil {
			return false, err
		}
		switch waited := s.between(since, answeredAt(op)); {
		case op.Outcome == history.Sold:
			s.blocked = waited
			return true, nil
		case waited > limit:
			return false, nil
		}
		name = fmt.Sprintf("%s%d", client, i)
	}
}

// answeredAt returns when a request was answered.
func answeredAt(op history.Op) time.Time {
	return time.Now().Add(time.Duration(op.ReceivedNS - monotonic.Now()))
}

// giveUp records that nobody could buy the item since then.
func (s *Stage) giveUp(since time.Time) {
	s.blocked, s.never = s.between(since, time.Now()), true
	s.Stepf("nobody could buy for %.1f s", s.blocked.Seconds())
}

// open prepares the item.
func (s *Stage) open(ctx context.Context, story string) error {
	s.began, s.beganNS = time.Now(), monotonic.Now()
	claim := s.Strategy.ClaimFor(2, false)
	s.run = history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: s.Strategy.Name, Store: s.Store, Replicas: 2, Workload: history.Workload{Name: story},
			},
			Round: 1,
		},
		Story: story, Claim: claim, Control: s.Strategy.Control, Witness: history.WitnessOracle,
		Fenced: s.Strategy.Fenced(), OmitsRemaining: s.Strategy.OmitsRemaining(), Keys: s.Strategy.Idempotent,
		Ledger: s.Strategy.Idempotent && s.durable() == oracle.MySQL,
		Set:    map[int64]int64{}, Initial: map[int64]int64{},
	}
	s.booked.Store(true)
	return s.addStock(ctx, s.Item)
}

// newItem puts one more item on sale.
func (s *Stage) newItem(ctx context.Context) (int64, error) {
	item := firstItem + s.items.Add(1)
	if err := s.setStock(ctx, units, item); err != nil {
		return 0, err
	}
	return item, s.addStock(ctx, item)
}

// addStock adds the units of an item, which were put on sale, to the history.
func (s *Stage) addStock(ctx context.Context, item int64) error {
	initial, err := s.Oracle.Stock(ctx, s.durable(), []int64{item})
	if err != nil {
		return err
	}
	s.run.Set[item], s.run.Initial[item] = units, initial[item]
	return nil
}

// durable is the store in which a sale is durable.
func (s *Stage) durable() string { return s.Strategy.Durable(s.Store) }

// judge reads what the story left, and has it judged. A story that was not played to its end may have cut off a sale
// between two stores.
func (s *Stage) judge(ctx context.Context, ended bool) (history.History, verify.Verdict, error) {
	h := history.History{Run: s.run, Ops: slices.SortedFunc(slices.Values(s.ops), func(a, b history.Op) int {
		return int(a.SentNS - b.SentNS)
	}), Calls: s.calls}
	if len(h.Ops)+len(h.Calls) == 0 {
		return h, verify.Verdict{}, errors.New("nobody asked for anything")
	}
	final, err := s.settled(ctx)
	if err != nil {
		return h, verify.Verdict{}, err
	}
	h.End = &history.End{StartedNS: s.beganNS, EndedNS: monotonic.Now(), Final: final}
	if s.Strategy.WriteThrough && ended {
		// One that writes behind makes up for a difference later: see settled.
		if h.End.Seller, err = s.Oracle.Stock(ctx, s.Store, slices.Collect(maps.Keys(final))); err != nil {
			return h, verify.Verdict{}, err
		}
	}
	if s.run.Ledger {
		if h.Ledger, err = s.Oracle.Ledger(ctx, fmt.Sprintf("story-%d", s.Item)); err != nil {
			return h, verify.Verdict{}, err
		}
		h.End.LedgerRead = true
	}
	return h, verify.Judge(&h), nil
}

// windows shows the story on a time axis. If no step says that the fault struck, it struck when it was proved.
func (s *Stage) windows(h *history.History) []timeline.Window {
	if len(h.Ops) == 0 {
		return nil
	}
	var struck *timeline.Fault
	for _, kind := range []report.StepKind{report.Proof, report.Strike} {
		at := slices.IndexFunc(s.steps, func(step report.FaultStep) bool { return step.Kind == kind })
		if at >= 0 {
			text := strings.TrimPrefix(s.steps[at].Text, proofPrefix)
			struck = &timeline.Fault{After: s.steps[at].After, Text: text}
		}
	}
	return timeline.Story(h, s.beganNS, s.requestName(""), struck)
}

// settled reads the stock when it has stopped changing. A strategy that writes behind may still be at it.
func (s *Stage) settled(ctx context.Context) (map[int64]int64, error) {
	items := slices.Collect(maps.Keys(s.run.Set))
	var last map[int64]int64
	since := time.Now()
	for {
		stock, err := s.Oracle.Stock(ctx, s.durable(), items)
		if err != nil {
			return nil, err
		}
		if !maps.Equal(stock, last) {
			last, since = stock, time.Now()
		}
		quiet := 50 * time.Millisecond
		if s.Strategy.WriteBehind && !s.written(ctx, stock) {
			quiet = takeOver
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

// takeOver is how long it takes at most until a replica writes the sales to MySQL that another one has left behind.
const takeOver = 10 * time.Second

// written reports whether the store that sells has the same stock as MySQL, which is updated afterwards.
func (s *Stage) written(ctx context.Context, stock map[int64]int64) bool {
	sold, err := s.Oracle.Stock(ctx, s.Store, slices.Collect(maps.Keys(stock)))
	return err == nil && maps.Equal(sold, stock)
}
