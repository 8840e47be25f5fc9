package load

import (
	"context"
	"fmt"
	"net/http"
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
		sale, err := trial.sell(ctx)
		if err == nil {
			err = trial.sellNone(ctx, sale)
		}
		if err != nil {
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

// sell returns the answer to a sale.
func (t trial) sell(ctx context.Context) (answer service.Reply, err error) {
	op, answer, err := t.ask(ctx, trialStock, "sale")
	if err != nil {
		return answer, err
	}
	request := t.Line(&op)
	if op.Outcome != history.Sold {
		return answer, fmt.Errorf("your service answered %s to %s at %s, with %d units in stock. That does not mean that a "+
			"unit was sold: see sold, sold_out, refused and request in the description", answer, request, t.url, trialStock)
	}
	left, err := t.awaitStock(ctx, trialStock-1)
	switch {
	case err != nil:
	case left != trialStock-1:
		err = fmt.Errorf("your service answered %d to %s at %s, so a unit was sold, but the stock went from %d to %d: is "+
			"stock.read about the stock that the service sells, and does every answer like this one mean that it has sold?",
			op.Status, request, t.url, trialStock, left)
	case t.Remaining != "" && op.OmitsRemaining:
		err = fmt.Errorf("the answer to %s has no number in the field %s (remaining)", request, t.Remaining)
	case t.Remaining != "" && op.Remaining != left:
		err = fmt.Errorf("the answer to %s says that %d units remain (%s), but %d do: leave remaining out of the "+
			"description unless it is what the sale has left", request, op.Remaining, t.Remaining, left)
	}
	return answer, err
}

// sellNone asks for a unit although there is none. Whether the service sells it is for the load to show, unless the
// answer only counts as a sale because the description does not say how the service answers when it is sold out.
func (t trial) sellNone(ctx context.Context, sale service.Reply) error {
	op, none, err := t.ask(ctx, 0, "none")
	if err != nil || op.Outcome == history.SoldOut {
		return err
	}
	counts := op.Outcome == history.Sold
	if counts {
		if differ, _ := t.TellSoldOut([]service.Reply{sale}, []service.Reply{none}); !differ {
			return nil
		}
		if left, err := t.awaitStock(ctx, -1); err != nil || left != 0 {
			return err
		}
	}
	differ, lines, err := t.compareAgain(ctx, sale, none)
	request := t.Line(&op)
	switch {
	case err != nil:
		return err
	case !counts:
		return fmt.Errorf("your service answered %s to %s at %s with nothing in stock: say in the description which answer "+
			"means sold_out%s", none, request, t.url, lines)
	case differ && lines == "":
		return fmt.Errorf("your service answered %s to %s at %s with nothing in stock, and %s with %d units. Both count as "+
			"sales. If the first is the answer for sold out, give it a status, or a field of JSON, that sales do not have",
			none, request, t.url, sale, trialStock)
	case differ:
		return fmt.Errorf("your service answered %s to %s at %s with nothing in stock. That counts as a sale, but the stock "+
			"stayed 0: if this is the answer for sold out, describe it%s", none, request, t.url, lines)
	}
	return nil
}

// compareAgain compares the answers to a sale and to a request with nothing in stock with those to two more: what
// changes from answer to answer, such as an id, tells nothing. lines tell the two apart in a description, if any do.
func (t trial) compareAgain(ctx context.Context, sale, none service.Reply) (differ bool, lines string, err error) {
	_, noneAgain, err := t.ask(ctx, 0, "none-again")
	if err != nil {
		return false, "", err
	}
	_, saleAgain, err := t.ask(ctx, trialStock, "sale-again")
	if err != nil {
		return false, "", err
	}
	differ, lines = t.TellSoldOut([]service.Reply{sale, saleAgain}, []service.Reply{none, noneAgain})
	if none.Status >= http.StatusInternalServerError { // an error, which should not pass for sold out
		return differ, "", nil
	}
	if lines != "" {
		lines = ":\n" + lines
	}
	return differ, lines, nil
}

// ask sends a request when there are so many units. Each has a name of its own.
func (t trial) ask(ctx context.Context, units int64, name string) (op history.Op, answer service.Reply, err error) {
	op = t.op
	op.Name += "-" + name
	if err := t.SetStock(ctx, map[int64]int64{op.GoodsID: units}); err != nil {
		return op, answer, err
	}
	if found, err := t.ReadStock(ctx, []int64{op.GoodsID}); err != nil || found[op.GoodsID] != units {
		if err == nil {
			err = fmt.Errorf("stock.set has set the stock of item %d to %d, and stock.read finds %d: the two must be about "+
				"the same stock, and set must also add an item that is not there", op.GoodsID, units, found[op.GoodsID])
		}
		return op, answer, err
	}
	load := traffic.Load{Service: t.Description, Timeout: t.timeout}
	op, answer.Body, err = traffic.AskOne(ctx, t.url, load, op)
	if answer.Status = op.Status; err == nil && op.Status == 0 {
		err = fmt.Errorf("your service did not answer %s at %s: %s", t.Line(&op), t.url, op.Error)
	}
	return op, answer, err
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
