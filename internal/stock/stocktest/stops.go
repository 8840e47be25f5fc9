package stocktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// stops is a replica that is stopped after each statement of a sale that it sends to MySQL, while another one buys the
// same item. That one may be refused only if the claim says that a holder that pauses blocks the item.
type stops struct {
	subject
	victim  stock.Deducter
	proxies []*tcpproxy.Proxy
}

// usesMySQL reports whether the strategy sends statements to MySQL when it sells.
func (s subject) usesMySQL() bool {
	needs := s.strategy.NeedsOn(s.store)
	return slices.Contains(needs, stock.NeedMySQL) || slices.Contains(needs, stock.NeedInnoDB)
}

// sellFunc sells units of an item to one buyer.
type sellFunc func(ctx context.Context, goodsID int64, count int) error

// runStops plays sales of one unit and of many, from a large stock and of the last units.
func (s subject) runStops(t *testing.T) {
	victim, proxies := s.behindProxies(t)
	stopped := stops{s, victim, proxies[:1]}
	deduct := func(keyed bool) sellFunc {
		return func(ctx context.Context, id int64, count int) error {
			req := stock.Request{GoodsID: id, Count: count}
			if keyed {
				req.Key = s.key(id)
			}
			_, err := victim.Deduct(ctx, req)
			return err
		}
	}
	ways := map[string]sellFunc{"deduct": deduct(false)}
	if s.strategy.Idempotent() {
		ways["deduct with a key"] = deduct(true)
	}
	if reserver, ok := victim.(stock.Reserver); ok {
		ways["hold"] = func(ctx context.Context, id int64, count int) error {
			_, _, err := reserver.Hold(ctx, stock.HoldRequest{
				Request: stock.Request{GoodsID: id, Count: count}, TTL: time.Minute,
			})
			return err
		}
	}
	if slices.Contains([]string{"batch", "escrow"}, s.strategy.Name) {
		t.Run("deduct a batch that does not fit", func(t *testing.T) { stopped.each(t, stopped.together, 3, 2, true) })
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
			t.Run(way+" "+c.name, func(t *testing.T) { stopped.each(t, sell, c.units, c.count, c.last) })
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

// each stops the sale before its first statement, before its second, and so on, until it is not stopped.
func (s stops) each(t *testing.T, sell sellFunc, units int64, count int, last bool) {
	var soldOut *stock.SoldOutError
	err := sell(patient(t), s.newItem(t, units), count) // opens the connection
	if err != nil && !errors.As(err, &soldOut) {
		t.Fatal(err)
	}
	var blocked []int
	const most = 60 // more statements than any sale has
	for n := 1; n <= most; n++ {
		stopped, sold := s.stopBefore(t, n, sell, units, count)
		if !stopped {
			s.judge(t, blocked, n-1, last)
			return
		}
		if !sold {
			blocked = append(blocked, n-1)
		}
	}
	t.Fatalf("a sale has more than %d statements", most)
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

// stopBefore stops the sale before its n-th statement, and reports whether it got that far, and whether the other
// replica sold meanwhile.
func (s stops) stopBefore(t *testing.T, n int, sell sellFunc, units int64, count int) (stopped, sold bool) {
	t.Helper()
	id := s.newItem(t, units)
	sent := holdNth(t, s.proxies, n, "", func() (stock.Receipt, error) {
		return stock.Receipt{}, sell(patient(t), id, count)
	})
	if sent.held {
		_, err := s.replicas[0].deducter.Deduct(stock.LimitWait(patient(t), 0), stock.Request{GoodsID: id, Count: 1})
		if sold = err == nil; sold {
			units--
		} else if !errors.Is(err, stock.ErrBusy) {
			t.Errorf("while the victim is stopped before statement %d, another sale: %v", n, err)
		}
	}
	// A sale that lost its turn may be refused, but then it must have taken nothing.
	ended := sent.resume()
	if ended.Err == nil {
		units -= int64(count)
	}
	if got := s.left(t, id); got != units {
		t.Errorf("stopped before statement %d, the sale ended with %v; %d units are left, want %d", n, ended.Err, got, units)
	}
	return sent.held, sold
}
