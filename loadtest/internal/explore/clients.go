package explore

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// answers are what clients were told.
type answers struct{ ops []history.Op }

// client sends the request of an actor, and tells each answer.
type client func(ctx context.Context, tell func(string)) (answers, error)

// holdTime is longer than a schedule takes. What ends it earlier is a fault.
const holdTime = 60_000 // milliseconds

// actors returns those of a schedule: first the requests, then what faults start.
func (x *session) actors(items []int64) (actors []*actor) {
	for n, r := range x.workload.requests {
		actors = append(actors, &actor{name: string(rune('A' + n)), replica: n, first: true, send: x.client(items, n, n, r)})
	}
	late := x.lane.late()
	return append(actors,
		&actor{name: againName, replica: late, send: x.client(items, 0, late, again(x.workload.requests[0]))},
		&actor{name: restockName, replica: late, send: x.restock(items[0])},
		&actor{name: setName, replica: late, send: x.setAnew(items[0])})
}

// client returns that of the n-th request, which it sends to a replica.
func (x *session) client(items []int64, n, at int, r request) client {
	if r.same {
		n = 0
	}
	name := fmt.Sprintf("%s-%c", requestPrefix(items[0]), 'A'+n)
	var lines []history.Line
	for _, line := range r.lines {
		lines = append(lines, history.Line{GoodsID: items[line.GoodsID], Count: line.Count})
	}
	op := history.Op{Kind: r.kind, Name: name, Client: n, Again: r.same && x.keyed()}
	if op.Again {
		op.How = history.InFlight
	}
	if r.kind == history.Order {
		op.Lines = lines
	} else {
		op.GoodsID, op.Count = lines[0].GoodsID, lines[0].Count
	}
	if x.lane.subject != nil {
		op.OmitsRemaining = x.strategy.OmitsRemaining()
		return x.lane.subject.client(x.lane, at, op)
	}
	url := x.lane.replicas[at].URL
	load := traffic.Load{
		Strategy: x.strategy.Name, Store: x.store, Keys: x.keyed(), Timeout: clientTimeout,
	}
	if r.kind == history.Hold {
		op.TTLMS, op.Keyed, op.Again = holdTime, x.keyed(), r.same
		return reserver(url, load, r.ends, op)
	}
	if r.kind == history.CancelSale {
		return canceller(url, load, op)
	}
	return func(ctx context.Context, tell func(string)) (got answers, err error) {
		sent, err := traffic.SendOne(ctx, url, load, op)
		tell(inWords(sent.Outcome, sent.Error))
		got.ops = append(got.ops, sent)
		if err != nil {
			return got, err
		}
		if r.ends == history.Cancel {
			ended, err := canceller(url, load, op)(ctx, tell)
			got.ops = append(got.ops, ended.ops...)
			return got, err
		}
		return got, nil
	}
}

// canceller returns a client who cancels a sale.
func canceller(url string, load traffic.Load, sale history.Op) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op := history.Op{Kind: history.CancelSale, Name: sale.Name, GoodsID: sale.GoodsID}
		op, err := traffic.SendOne(ctx, url, load, op)
		tell("cancel: " + inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}

// requestPrefix begins the names of all requests of a schedule.
func requestPrefix(item int64) string { return fmt.Sprintf("explore-%d", item) }

// reserver returns a client who reserves units, and then ends the reservation.
func reserver(url string, load traffic.Load, ends string, hold history.Op) client {
	return func(ctx context.Context, tell func(string)) (got answers, err error) {
		reserved, err := traffic.SendOne(ctx, url, load, hold)
		tell(inWords(reserved.Outcome, reserved.Error))
		got.ops = append(got.ops, reserved)
		if err != nil || reserved.Outcome != history.Done || ends == "" {
			return got, err
		}
		ended, err := traffic.SendOne(ctx, url, load, traffic.About(reserved, ends, false))
		tell(ends + ": " + inWords(ended.Outcome, ended.Error))
		got.ops = append(got.ops, ended)
		return got, err
	}
}

func inWords(outcome history.Outcome, problem string) string {
	text := strings.ReplaceAll(string(outcome), "_", " ")
	if why := history.InWords(problem); why != "" && why != text {
		text += ": " + why
	}
	return text
}

// restock returns a client who puts a unit back.
func (x *session) restock(item int64) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op := history.Op{Kind: history.Restock, Name: requestPrefix(item) + "-restock", GoodsID: item, Count: 1}
		op, err := traffic.RestockOne(ctx, x.lane.replicas[x.lane.late()].AdminURL, x.store, clientTimeout, op)
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}

// Of a stock that is set during a schedule.
const (
	stockSet = "set" // the kind of the Op
	setTo    = 5     // units
)

// setAnew returns a client who sets the stock.
func (x *session) setAnew(item int64) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op := history.Op{Kind: stockSet, GoodsID: item, Count: setTo, SentNS: monotonic.Now(), Outcome: history.Sold}
		service := x.desk()
		service.Client = &http.Client{Timeout: clientTimeout}
		if err := service.SetStock(ctx, map[int64]int64{item: setTo}); err != nil {
			op.Outcome, op.Error = history.Unknown, err.Error()
		}
		op.ReceivedNS = monotonic.Now()
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, nil
	}
}
