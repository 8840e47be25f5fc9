package sequence

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"stock/internal/contract"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
)

// settleTime is how long a service may take to write a sale after its answer.
const settleTime = 10 * time.Second

// PlayOwn plays sequences on a service of the user's, as far as its description goes: sales, the same key once more,
// also for another request, cancellations, and the stock set anew or added to.
func PlayOwn(ctx context.Context, own *service.Running, timeout time.Duration, o Options) (report.Contract, error) {
	rules := contract.Rules{
		Store: own.Store(), Remaining: own.Remaining != "", Plain: true, RefusesReuse: own.KeyReused,
	}
	if own.IdempotencyHeader != "" {
		rules.Keys = rules.Store
	}
	var items, scripts atomic.Int64
	items.Store(firstOwnItem)
	run := time.Now().UnixNano()
	p := contract.Player{
		New: func() contract.Service {
			return &ownService{
				Running: own, timeout: timeout, items: map[byte]int64{}, newItem: func() int64 { return items.Add(1) },
				keys: fmt.Sprintf("contract-%d-%d-", run, scripts.Add(1)),
			}
		},
		Rules: map[string]contract.Rules{"": rules}, Patience: patience, Settle: settleTime,
	}
	can := contract.Can{
		Rules: p.Rules, Cancel: own.Cancel.Given(), Restock: own.Restock.Given(), Known: true, One: own.OneUnit(),
		Items: 2,
	}
	failed, err := p.Check(ctx, can, o.Seed, o.Each, 1)
	c := report.Contract{Strategy: own.Name, Store: rules.Store, Sequences: o.Each, Own: true}
	err = judge(ctx, &c, failed, cmp.Or(err, p.Proves()))
	return c, err
}

// firstOwnItem is an id that no load uses. It fits into 32 bits.
const firstOwnItem = 1 << 24

// ownService is a service of the user's, with items and keys of one script.
type ownService struct {
	*service.Running
	timeout time.Duration
	items   map[byte]int64
	newItem func() int64
	keys    string // before each key
	unkeyed int    // requests without a key, each of which gets one of its own
}

func (s *ownService) item(letter byte) int64 {
	if s.items[letter] == 0 {
		s.items[letter] = s.newItem()
	}
	return s.items[letter]
}

// Ask implements contract.Service.
func (s *ownService) Ask(ctx context.Context, q contract.Request) (string, error) {
	switch q.Verb {
	case contract.Set:
		line := q.Lines[0]
		return fmt.Sprintf("%d in stock", line.Count), s.SetStock(ctx, map[int64]int64{s.item(line.Item): line.Count})
	case contract.Cancel, contract.Restock:
		return s.change(ctx, q)
	}
	load := traffic.Load{Service: s.Description, Timeout: s.timeout}
	op, err := traffic.SendOne(ctx, s.url(q), load, s.op(q))
	switch {
	case err != nil:
		return "", err
	case op.Outcome == history.Sold && s.Remaining != "":
		return fmt.Sprintf("%d remain", op.Remaining), nil
	case op.Outcome == history.Sold:
		return "sold", nil
	case op.Outcome == history.SoldOut:
		return "sold out", nil
	case op.Outcome == history.Unknown:
		return contract.Unknown, nil
	case op.Status >= http.StatusInternalServerError || op.Status == 0:
		return contract.Busy, nil
	}
	return contract.Refused, nil
}

// change cancels a sale, or restocks.
func (s *ownService) change(ctx context.Context, q contract.Request) (string, error) {
	r, err := s.changeRequest(ctx, q)
	if err != nil {
		return "", err
	}
	status := service.Send(r)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case status/100 == 2:
		return map[contract.Verb]string{contract.Cancel: "cancelled", contract.Restock: "restocked"}[q.Verb], nil
	case status/100 == 4:
		return contract.Refused, nil
	case status == http.StatusServiceUnavailable:
		return contract.Busy, nil
	}
	return contract.Unknown, nil
}

func (s *ownService) changeRequest(ctx context.Context, q contract.Request) (*http.Request, error) {
	if q.Verb == contract.Cancel {
		return s.NewRequest(ctx, q.Replica, s.Cancel, 0, 0, s.keys+q.Key)
	}
	return s.NewRequest(ctx, q.Replica, s.Restock, s.item(q.Lines[0].Item), q.Lines[0].Count, "")
}

// op is a request as the load sends it.
func (s *ownService) op(q contract.Request) history.Op {
	op := history.Op{Kind: history.Deduct, GoodsID: s.item(q.Lines[0].Item), Count: q.Lines[0].Count, Name: s.keys + q.Key}
	if q.Key == "" {
		s.unkeyed++
		op.Name = fmt.Sprint(s.keys, s.unkeyed)
	}
	return op
}

func (s *ownService) url(q contract.Request) string { return s.URLs[q.Replica%len(s.URLs)] }

// Pending implements contract.Service.
func (s *ownService) Pending(context.Context) (bool, error) { return false, nil }

// Left implements contract.Service.
func (s *ownService) Left(ctx context.Context, _ string, item byte) (int64, error) {
	id := s.item(item)
	found, err := s.ReadStock(ctx, []int64{id})
	return found[id], err
}

// Curl implements contract.Service.
func (s *ownService) Curl(q contract.Request) string {
	if q.Verb == contract.Cancel || q.Verb == contract.Restock {
		r, err := s.changeRequest(context.Background(), q)
		if err != nil {
			return "# " + q.String()
		}
		return contract.CurlOf(r)
	}
	if q.Verb == contract.Set {
		return fmt.Sprintf("# set the stock of item %d to %d", s.item(q.Lines[0].Item), q.Lines[0].Count)
	}
	scheme, host, _ := strings.Cut(s.url(q), "://")
	host, path, slash := strings.Cut(host, "/")
	if slash {
		path = "/" + path
	}
	op := s.op(q)
	text := s.AppendRequest(nil, host, path, op.Name, &op)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return "# " + q.String()
	}
	r.URL.Scheme, r.URL.Host = scheme, r.Host
	r.Header.Del("Content-Length")
	return contract.CurlOf(r)
}
