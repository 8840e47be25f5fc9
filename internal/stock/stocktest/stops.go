package stocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// RunStops stops a replica after each statement of a sale that it sends to MySQL, and lets another replica buy the same
// item meanwhile. It checks every strategy of a catalogue that sells correctly on two replicas and uses MySQL: the
// other one may be refused only if the claim says that a holder that pauses blocks the item.
func RunStops(t *testing.T, strategies []stock.Strategy, a Addresses) {
	for _, strategy := range strategies {
		for _, store := range strategy.Stores {
			needs := strategy.NeedsOn(store)
			inMySQL := slices.Contains(needs, stock.NeedMySQL) || slices.Contains(needs, stock.NeedInnoDB)
			if !inMySQL || strategy.Claim.TwoReplicas != stock.Correct ||
				serverstest.TiDB != "" && slices.Contains(needs, stock.NeedInnoDB) {
				continue
			}
			t.Run(strategy.Name+"/"+string(store), func(t *testing.T) {
				t.Parallel()
				newStops(t, strategy, store, a).run(t)
			})
		}
	}
}

// stops is a strategy on a replica behind a proxy, the victim, and on one that survives.
type stops struct {
	strategy         stock.Strategy
	store            stock.Store
	proxy            *tcpproxy.Proxy
	service          *Service
	victim, survivor stock.Deducter
}

func newStops(t *testing.T, strategy stock.Strategy, store stock.Store, a Addresses) stops {
	s := stops{strategy: strategy, store: store}
	s.service = NewService(t, a.Connect(t), strategy)
	s.survivor = s.service.Deducter(t, strategy.Name, store)
	s.proxy, a.MySQL = ProxyMySQL(t, a.MySQL)
	s.victim = NewService(t, a.Connect(t), strategy).Deducter(t, strategy.Name, store)
	return s
}

// sellFunc sells units of an item to one buyer.
type sellFunc func(ctx context.Context, goodsID int64, count int) error

// run plays sales of one unit and of many, from a large stock and of the last units.
func (s stops) run(t *testing.T) {
	ways := map[string]sellFunc{"deduct": func(ctx context.Context, id int64, count int) error {
		_, err := s.victim.Deduct(ctx, stock.Request{GoodsID: id, Count: count})
		return err
	}}
	if s.strategy.Idempotent() {
		ways["deduct with a key"] = func(ctx context.Context, id int64, count int) error {
			_, err := s.victim.Deduct(ctx, stock.Request{GoodsID: id, Count: count, Key: fmt.Sprint(s.strategy.Name, id)})
			return err
		}
	}
	if reserver, ok := s.victim.(stock.Reserver); ok {
		ways["hold"] = func(ctx context.Context, id int64, count int) error {
			_, _, err := reserver.Hold(ctx, stock.HoldRequest{
				Request: stock.Request{GoodsID: id, Count: count}, TTL: time.Minute,
			})
			return err
		}
	}
	if slices.Contains([]string{"batch", "escrow"}, s.strategy.Name) {
		t.Run("deduct a batch that does not fit", func(t *testing.T) { s.play(t, s.together, 3, 2, true) })
	}
	for way, sell := range ways {
		for _, c := range []struct {
			name  string
			units int64
			count int
			last  bool // these are the last units, or more than any row has
		}{
			{"one of many units", 5000, 1, false},
			{"many of many units", 1600, 150, s.store == stock.Slots},
			{"one of the last units", 3, 1, true},
			{"more than is left", 3, 4, true},
		} {
			t.Run(way+" "+c.name, func(t *testing.T) { s.play(t, sell, c.units, c.count, c.last) })
		}
	}
}

// together sells count units, one to a buyer, while others ask for more than is left, most of them in one batch.
func (s stops) together(ctx context.Context, goodsID int64, count int) error {
	const others, tooMany = 4, 50
	answers := make(chan error, count)
	ask := func(count int) error {
		_, err := s.victim.Deduct(ctx, stock.Request{GoodsID: goodsID, Count: count})
		return err
	}
	var refused sync.WaitGroup
	for range others {
		refused.Go(func() { _ = ask(tooMany) })
	}
	for range count {
		go func() { answers <- ask(1) }()
	}
	var errs []error
	for range count {
		errs = append(errs, <-answers)
	}
	refused.Wait()
	return errors.Join(errs...)
}

// maxStatements is more than any sale sends.
const maxStatements = 60

// play stops the sale before its first statement, before its second, and so on, until it is not stopped.
func (s stops) play(t *testing.T, sell sellFunc, units int64, count int, last bool) {
	var soldOut *stock.SoldOutError
	err := sell(patient(t), s.service.NewItem(t, units), count) // opens the connection
	if err != nil && !errors.As(err, &soldOut) {
		t.Fatal(err)
	}
	blocked := []int{}
	for n := range maxStatements {
		stopped, sold := s.stopAfter(t, n, sell, s.service.NewItem(t, units), units, count)
		if !stopped {
			s.judge(t, blocked, n, last)
			return
		}
		if !sold {
			blocked = append(blocked, n)
		}
	}
	t.Fatalf("the sale takes more than %d statements", maxStatements)
}

func (s stops) judge(t *testing.T, blocked []int, statements int, last bool) {
	claim := s.strategy.Claim
	blocks := claim.HolderPause == stock.LateBlocks && (claim.LateCaveat == "" || last)
	leased := claim.HolderCrash == stock.CrashBlocksLease || claim.HolderCrash == stock.CrashBlocksForever
	t.Logf("stopped after each of %d statements; after %v, nobody else can buy", statements, blocked)
	if len(blocked) > 0 && !blocks && !leased {
		t.Errorf("the claim is %q, %q, but nobody else can buy while it is stopped after statement %v of %d",
			claim.HolderPause, claim.LateCaveat, blocked, statements)
	}
	if len(blocked) == 0 && blocks && claim.LateCaveat == "" {
		t.Errorf("the claim is %q, but somebody else could always buy", claim.HolderPause)
	}
}

// stopAfter stops the sale after n statements, and reports whether it got that far, and whether the other replica sold
// meanwhile.
func (s stops) stopAfter(
	t *testing.T, n int, sell sellFunc, id, units int64, count int,
) (stopped, sold bool) {
	t.Helper()
	seen, before := 0, s.proxy.Count()
	s.proxy.Select(func(tcpproxy.Message) bool { seen++; return seen > n })
	release := s.proxy.Hold()
	defer release()
	done := make(chan error, 1)
	go func() { done <- sell(patient(t), id, count) }()
	var ended []error
	serverstest.Eventually(t, "the sale is stopped or has ended", func() bool {
		select {
		case err := <-done:
			ended = append(ended, err)
			return true
		default:
			return s.proxy.Count() > before
		}
	})
	left := units
	if len(ended) == 0 {
		_, err := s.survivor.Deduct(stock.LimitWait(patient(t), 0), stock.Request{GoodsID: id, Count: 1})
		stopped, sold = true, err == nil
		if err != nil && !errors.Is(err, stock.ErrBusy) {
			t.Errorf("while the victim is stopped after %d statements, another sale: %v", n, err)
		}
		if sold {
			left--
		}
		release()
		ended = append(ended, <-done)
	}
	// A sale that lost its turn may be refused, but then it must have taken nothing.
	if ended[0] == nil {
		left -= int64(count)
	}
	if got := s.service.Left(t, s.store, id); got != left {
		t.Errorf("stopped after %d statements, the sale ended with %v; %d units are left, want %d", n, ended[0], got, left)
	}
	return stopped, sold
}
