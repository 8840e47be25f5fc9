package scenario

import (
	"context"
	"fmt"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// Own returns what takes the place of a strategy if a service of the user's is tested, or a script. It is to be correct
// on any number of replicas. What a late write or a retry does is only reported, unless it has keys.
func Own(name, store string, keyed, reportsRemaining bool) Choice {
	claim := Claim{
		OneReplica: verify.ClaimCorrect, TwoReplicas: verify.ClaimCorrect, HolderCrash: "the stock agrees with the answers",
	}
	if keyed {
		claim.ClientRetry = "repeats-answer"
	}
	return Choice{Store: store, Strategy: Strategy{
		Name: name, Stores: []string{store}, Claim: claim, Idempotent: keyed, Own: true, ReportsRemaining: &reportsRemaining,
	}}
}

// OwnService returns Own for what a description describes.
func OwnService(d *service.Description) Choice {
	choice := Own(d.Name, d.Store(), d.IdempotencyHeader != "", d.Remaining != "")
	choice.Strategy.OneUnit = d.OneUnit()
	return choice
}

// trialStock is how many units there are when a unit is sold to see whether the description is right.
const trialStock = 10

// trialPatience is how long a service may take to write a sale.
const trialPatience = 2 * time.Second

// TrySale has each replica of a service sell one unit of an item, and then none, and returns an error if its answers or
// its stock are not what its description says.
func TrySale(ctx context.Context, own *service.Running, item int64, timeout time.Duration) error {
	for i, url := range own.URLs {
		trial := trial{Running: own, url: url, op: history.Op{
			Kind: history.Deduct, Name: fmt.Sprintf("trial-%d-%d", i, time.Now().UnixNano()), GoodsID: item, Count: 1,
		}, timeout: timeout}
		if err := trial.sell(ctx); err != nil {
			return err
		}
		if err := trial.sellNone(ctx); err != nil {
			return err
		}
	}
	return nil
}

type trial struct {
	*service.Running
	url     string
	op      history.Op
	timeout time.Duration
}

func (t trial) sell(ctx context.Context) error {
	op, err := t.ask(ctx, trialStock)
	if err != nil {
		return err
	}
	request := t.Line(&t.op)
	if op.Outcome != history.Sold {
		return fmt.Errorf("your service answered %s to %s at %s, with %d units in stock. That does not mean that a unit was "+
			"sold: see sold, sold_out, refused and request in the description", op.Error, request, t.url, trialStock)
	}
	left, err := t.awaitStock(ctx, trialStock-1)
	switch {
	case err != nil:
		return err
	case left != trialStock-1:
		return fmt.Errorf("your service answered %d to %s at %s, so a unit was sold, but the stock went from %d to %d: is "+
			"stock.read about the stock that the service sells, and does every answer like this one mean that it has sold?",
			op.Status, request, t.url, trialStock, left)
	case t.Remaining != "" && op.OmitsRemaining:
		return fmt.Errorf("the answer to %s has no number in the field %s (remaining)", request, t.Remaining)
	case t.Remaining != "" && op.Remaining != left:
		return fmt.Errorf("the answer to %s says that %d units remain (%s), but %d do: leave remaining out of the "+
			"description unless it is what the sale has left", request, op.Remaining, t.Remaining, left)
	}
	return nil
}

// sellNone asks for a unit although there is none. Whether the service sells it is for the load to show.
func (t trial) sellNone(ctx context.Context) error {
	t.op.Name += "-none"
	op, err := t.ask(ctx, 0)
	if err == nil && op.Outcome != history.Sold && op.Outcome != history.SoldOut {
		return fmt.Errorf("your service answered %s to %s at %s with nothing in stock: say in the description which answer "+
			"means sold_out", op.Error, t.Line(&t.op), t.url)
	}
	return err
}

// ask sends the request when there are so many units.
func (t trial) ask(ctx context.Context, units int64) (history.Op, error) {
	item := t.op.GoodsID
	if err := t.SetStock(ctx, map[int64]int64{item: units}); err != nil {
		return t.op, err
	}
	if found, err := t.ReadStock(ctx, []int64{item}); err != nil || found[item] != units {
		if err == nil {
			err = fmt.Errorf("stock.set has set the stock of item %d to %d, and stock.read finds %d: the two must be about "+
				"the same stock, and set must also add an item that is not there", item, units, found[item])
		}
		return t.op, err
	}
	load := traffic.Load{Service: t.Description, Timeout: t.timeout}
	op, err := traffic.SendOne(ctx, t.url, load, t.op)
	if err == nil && op.Status == 0 {
		err = fmt.Errorf("your service did not answer %s at %s: %s", t.Line(&t.op), t.url, op.Error)
	}
	return op, err
}

// awaitStock reads the stock until it is what it should be, or has had the time to become so.
func (t trial) awaitStock(ctx context.Context, want int64) (int64, error) {
	for until := time.Now().Add(trialPatience); ; {
		found, err := t.ReadStock(ctx, []int64{t.op.GoodsID})
		if left := found[t.op.GoodsID]; err != nil || left == want || time.Now().After(until) {
			return left, err
		}
		if err := monotonic.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
