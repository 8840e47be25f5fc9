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
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/barrier"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// units is the stock of a scenario's item. It is enough for all clients. The strategy slots has one unit in each of its
// 16 rows: a client that buys one unit finds it in any row, and one that buys two has to lock them all.
const units = 16

// manyUnits are so many that the item never sells out.
const manyUnits = 1_000_000

// Stage is where one cell is played: an item of its own, the clients that ask for it, and the record of what happens. A
// scenario is told like a test: a step that cannot be played ends it. What was opened is closed when the scenario has
// ended.
type Stage struct {
	*Deployment
	ctx context.Context // of the scenario, as in testing.T
	messages.Sale
	Scenario string // the name of the scenario

	player  *Player
	company *company
	note    func(report.FaultStep) // called for each step; see Options.Step
	began   time.Time
	beganNS int64 // on the clock of the history

	background sync.WaitGroup // of what a scenario does while it goes on
	atEnd      []func()       // close what was opened, in the order of opening

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
	reads  []period          // of those who read the steps, one after the other
	asking []*Asking         // in the order of asking
	owners map[string]string // the client that was seen to be the owner of a lock; empty: one that nobody knows
}

// period is a time in which somebody has read a step.
type period struct{ from, to time.Time }

// ended ends a scenario that cannot be played to its end.
type ended struct{ err error }

// check ends the scenario if err is not nil.
func (s *Stage) check(err error) {
	if err != nil {
		panic(ended{err})
	}
}

// failf ends the scenario. That is no verdict: the cell is inconclusive, unless the judge finds damage.
func (s *Stage) failf(format string, args ...any) { s.check(fmt.Errorf(format, args...)) }

// requiref ends the scenario unless a condition holds.
func (s *Stage) requiref(holds bool, format string, args ...any) {
	if !holds {
		s.failf(format, args...)
	}
}

// tell plays a part of a scenario, and returns why it could not be played to its end.
func tell(part func()) (err error) {
	defer func() {
		if why := recover(); why != nil {
			e, ok := why.(ended)
			if !ok {
				panic(why)
			}
			err = e.err
		}
	}()
	part()
	return nil
}

// play plays a scenario. It closes what the scenario has opened, and ends what the scenario has left in the background.
func (s *Stage) play(ctx context.Context, scenario func(*Stage)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.background.Wait()
	defer cancel()
	s.ctx = ctx
	defer func() {
		for _, end := range slices.Backward(s.atEnd) {
			end()
		}
	}()
	return tell(func() { scenario(s) })
}

// meanwhile plays a part of the scenario while the scenario goes on. It must end soon after the scenario's context. The
// function that it returns waits until the part has ended.
func (s *Stage) meanwhile(part func()) (wait func()) {
	over := make(chan error, 1)
	s.background.Go(func() { over <- tell(part) })
	return func() { s.check(<-over) }
}

// eventually waits until a condition holds that the scenario observes.
func (s *Stage) eventually(what string, holds func() bool) {
	s.check(eventually(s.ctx, what, func() (held bool, err error) {
		err = tell(func() { held = holds() })
		return held, err
	}))
}

// happened reports whether something has happened.
func happened(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// await waits until something has happened.
func (s *Stage) await(happened <-chan struct{}) {
	select {
	case <-happened:
	case <-s.ctx.Done():
		s.check(s.ctx.Err())
	}
}

// Stepf records what happens.
func (s *Stage) Stepf(format string, args ...any) { s.step(report.Event, inWords(format, args...)) }

// inWords is fmt.Sprintf with words in place of the types of problems.
func inWords(format string, args ...any) string { return history.InWords(fmt.Sprintf(format, args...)) }

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
	text := inWords(format, args...)
	s.mu.Lock()
	s.proof = text
	s.mu.Unlock()
	s.step(report.Proof, proofPrefix+text)
}

// Failf records that the strategy did what it must not do, and that the stock does not show it. The cell is then
// unsafe.
func (s *Stage) Failf(format string, args ...any) {
	text := inWords(format, args...)
	s.mu.Lock()
	s.broken = cmp.Or(s.broken, text)
	s.mu.Unlock()
	s.Stepf("%s", text)
}

// proofPrefix is how the step with the proof begins.
const proofPrefix = "proof: "

// strike lets a fault strike once for all cells that are played side by side, and returns when that began.
func (s *Stage) strike(what string, strike func(context.Context) error) (struckNS int64) {
	s.together(report.Strike, what, strike)
	return s.company.struckNS.Load()
}

// mend ends a fault once for all cells that are played side by side.
func (s *Stage) mend(what string, mend func(context.Context) error) {
	s.together(report.Mending, what, mend)
}

// meet waits until all cells that are played side by side have come as far.
func (s *Stage) meet(what string) {
	s.together(report.Event, what, func(context.Context) error { return nil })
}

// together does something once for all cells that are played side by side.
func (s *Stage) together(kind report.StepKind, what string, do func(context.Context) error) {
	err := s.company.Meet(s.ctx, func(ctx context.Context) error {
		s.company.struckNS.Store(monotonic.Now())
		return do(ctx)
	})
	s.requiref(err == nil, "%s: %w", what, err)
	s.step(kind, what)
}

// inTurn plays a part of the scenario that must not meet the same part of other cells.
func (s *Stage) inTurn(part func()) {
	s.company.turn.Lock()
	defer s.company.turn.Unlock()
	s.check(s.ctx.Err())
	part()
}

// company is the cells of a scenario that are played side by side. A fault that strikes them all, such as the death of
// a replica, waits until each is ready for it.
type company struct {
	*barrier.Barrier
	struckNS atomic.Int64 // when the last fault began to strike
	turn     sync.Mutex   // held by the member whose turn it is
}

// open prepares the item.
func (s *Stage) open(ctx context.Context, scenario string) error {
	s.began, s.beganNS = time.Now(), monotonic.Now()
	claim := s.Strategy.ClaimFor(2, false)
	s.run = history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: s.Strategy.Name, Store: s.Store, Replicas: 2, Workload: history.Workload{Name: scenario},
			},
			Round: 1,
		},
		Scenario: scenario, Claim: claim, Control: s.Strategy.Control, Witness: history.WitnessOracle,
		Fenced: s.Strategy.Fenced(), OmitsRemaining: s.Strategy.OmitsRemaining(), Keys: s.Strategy.Idempotent,
		Ledger: s.Strategy.Idempotent && s.Store == oracle.MySQL,
		Set:    map[int64]int64{}, Initial: map[int64]int64{},
	}
	s.booked.Store(true)
	return s.addStock(ctx, s.Item, units)
}

// newItem puts one more item on sale.
func (s *Stage) newItem() int64 {
	item := s.player.nextItem()
	s.putOnSale(item, units)
	return item
}

// putOnSale sets the stock of an item. What was sold of it before is not part of the history.
func (s *Stage) putOnSale(item, units int64) {
	s.check(s.setStock(s.ctx, units, item))
	s.check(s.addStock(s.ctx, item, units))
}

// setManyUnits puts so many units of the item on sale that it never sells out.
func (s *Stage) setManyUnits() {
	s.booked.Store(false) // a crowd records its requests later
	s.putOnSale(s.Item, manyUnits)
}

// addStock adds the units of an item, which were put on sale, to the history.
func (s *Stage) addStock(ctx context.Context, item, units int64) error {
	initial, err := s.Oracle.Stock(ctx, s.durable(), []int64{item})
	if err != nil {
		return err
	}
	s.run.Set[item], s.run.Initial[item] = units, initial[item]
	return nil
}

// stock is how many units of the item a store has.
func (s *Stage) stock(store string) int64 {
	stock, err := s.Oracle.Stock(s.ctx, store, []int64{s.Item})
	s.check(err)
	return stock[s.Item]
}

// durable is the store in which a sale is durable.
func (s *Stage) durable() string { return s.Strategy.Durable(s.Store) }

// judge reads what the scenario left, and has it judged. A scenario that was not played to its end may have cut off a
// sale between two stores.
func (s *Stage) judge(ctx context.Context, ended bool) (history.History, verify.Verdict, error) {
	h := history.History{Run: s.run, Ops: slices.SortedFunc(slices.Values(s.ops), func(a, b history.Op) int {
		return int(a.SentNS - b.SentNS)
	})}
	if len(h.Ops) == 0 {
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
		if h.Ledger, err = s.Oracle.Ledger(ctx, fmt.Sprintf("scenario-%d", s.Item)); err != nil {
			return h, verify.Verdict{}, err
		}
		h.End.LedgerRead = true
	}
	return h, verify.Judge(&h), nil
}

// windows shows the scenario on a time axis. If no step says that the fault struck, it struck when it was proved.
func (s *Stage) windows(h *history.History) []timeline.Window {
	if !slices.ContainsFunc(h.Ops, func(op history.Op) bool { return op.Sells() }) {
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
	return timeline.Scenario(h, s.beganNS, requestName(s.Item, ""), struck)
}

// settled reads the stock when it has stopped changing. A strategy that writes behind may still be at it.
func (s *Stage) settled(ctx context.Context) (map[int64]int64, error) {
	items := slices.Collect(maps.Keys(s.run.Set))
	var last map[int64]int64
	since := time.Now()
	err := eventually(ctx, "the stock does not change any more", func() (bool, error) {
		stock, err := s.Oracle.Stock(ctx, s.durable(), items)
		if err != nil {
			return false, err
		}
		if !maps.Equal(stock, last) {
			last, since = stock, time.Now()
		}
		quiet := 50 * time.Millisecond
		if s.Strategy.WriteBehind && !s.written(ctx, stock) {
			quiet = takeOver
		}
		return time.Since(since) >= quiet, nil
	})
	return last, err
}

// variant is what follows the slash in the scenario's name.
func (s *Stage) variant() string {
	_, variant, _ := strings.Cut(s.Scenario, "/")
	return variant
}

// takeOver is how long it takes at most until a replica writes the sales to MySQL that another one has left behind.
const takeOver = 10 * time.Second

// written reports whether the store that sells has the same stock as MySQL, which is updated afterwards.
func (s *Stage) written(ctx context.Context, stock map[int64]int64) bool {
	sold, err := s.Oracle.Stock(ctx, s.Store, slices.Collect(maps.Keys(stock)))
	return err == nil && maps.Equal(sold, stock)
}

// requestName names a client's request. The item makes it unique.
func requestName(item int64, client string) string {
	return fmt.Sprintf("scenario-%d-%s", item, client)
}

// Asking is a request without an answer.
type Asking struct {
	Client  string `json:"client"`
	Replica string `json:"replica"` // empty: nginx chooses one
	Held    string `json:"held"`    // its message that a proxy holds; empty if there is none
	ForMS   int64  `json:"for_ms"`
	request string // its name
	since   time.Time
	held    *tcpproxy.Caught
}

// asks notes that a client waits for an answer. answered must be called when it has come.
func (s *Stage) asks(client, replica, request string) (answered func()) {
	a := &Asking{Client: client, Replica: replica, request: request, since: time.Now()}
	s.mu.Lock()
	s.asking = append(s.asking, a)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.asking = slices.DeleteFunc(s.asking, func(b *Asking) bool { return a == b })
		s.mu.Unlock()
	}
}
