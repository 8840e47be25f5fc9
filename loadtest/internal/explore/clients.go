package explore

import (
	"context"
	"fmt"
	"strings"

	"stock/internal/contract"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// answers are what clients were told: as in a load, or as in a race.
type answers struct {
	ops   []history.Op
	calls []contract.Call
}

// client sends the request of an actor, and tells each answer.
type client func(ctx context.Context, tell func(string)) (answers, error)

// actors returns those of a schedule: first the requests, then what faults start.
func (x *session) actors(items []int64) (actors []*actor) {
	for n, r := range x.workload.requests {
		actors = append(actors, &actor{name: string(rune('A' + n)), replica: n, first: true, send: x.client(items, n, n, r)})
	}
	late := x.lane.late()
	return append(actors,
		&actor{name: againName, replica: late, send: x.client(items, 0, late, again(x.workload.requests[0]))},
		&actor{name: restockName, replica: late, send: x.restock(items[0])})
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
	return func(ctx context.Context, tell func(string)) (answers, error) {
		sent, err := traffic.SendOne(ctx, url, load, op)
		tell(inWords(sent.Outcome, sent.Error))
		return answers{ops: []history.Op{sent}}, err
	}
}

// requestPrefix begins the names of all requests of a schedule.
func requestPrefix(item int64) string { return fmt.Sprintf("explore-%d", item) }

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
