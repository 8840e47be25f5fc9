package stocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// BatchReplica is a replica that sells one item in batches. A proxy counts and holds back what it sends to its server.
type BatchReplica struct {
	stock.Deducter
	Service *Service
	Deps    stock.Deps
	Proxy   *tcpproxy.Proxy
	Store   stock.Store
	Item    int64
}

// NewBatchReplica makes a replica and its item. deps lead through the proxy.
func NewBatchReplica(
	t testing.TB, strategy string, on stock.Store, deps stock.Deps, proxy *tcpproxy.Proxy, units int64,
) *BatchReplica {
	t.Helper()
	r := &BatchReplica{Service: NewService(t, deps), Deps: deps, Proxy: proxy, Store: on}
	r.Deducter = r.Service.Deducter(t, strategy, on)
	r.Item = r.Service.NewItem(t, units)
	return r
}

// Waiting returns how many requests wait for the batch under way.
func (r *BatchReplica) Waiting() int {
	return r.Deducter.(interface{ Waiting(goodsID int64) int }).Waiting(r.Item)
}

// Lines returns how many items have a batch under way.
func (r *BatchReplica) Lines() int { return r.Deducter.(interface{ Lines() int }).Lines() }

// WantLeft checks the stock of the item.
func (r *BatchReplica) WantLeft(t testing.TB, want int64) {
	t.Helper()
	r.Service.WantLeft(t, r.Store, r.Item, want)
}

// Answer is what a request was answered.
type Answer struct {
	Receipt stock.Receipt
	Err     error
}

// String describes the answer in a few words, such as "7 remain" or "sold out at 7, replayed".
func (a Answer) String() string {
	told := fmt.Sprintf("%d remain", a.Receipt.Remaining)
	if soldOut, ok := errors.AsType[*stock.SoldOutError](a.Err); ok {
		told = fmt.Sprintf("sold out at %d", soldOut.Remaining)
	} else if a.Err != nil {
		told = a.Err.Error()
		for _, known := range knownErrors {
			if errors.Is(a.Err, known.err) {
				told = known.words
			}
		}
	}
	if a.Receipt.Replayed {
		told += ", replayed"
	}
	return told
}

var knownErrors = []struct {
	err   error
	words string
}{
	{stock.ErrUnknown, "outcome unknown"},
	{stock.ErrBusy, "busy"},
	{stock.ErrUnavailable, "unavailable"},
	{stock.ErrKeyReused, "key reused"},
	{stock.ErrInProgress, "in progress"},
	{stock.ErrCancelled, "cancelled"},
	{stock.ErrUnknownItem, "unknown item"},
	{stock.ErrUnknownSale, "unknown sale"},
	{stock.ErrMoreThanSold, "more than sold"},
	{stock.ErrOverstocked, "overstocked"},
	{stock.ErrReservationExpired, "refused: expired"},
	{stock.ErrReservationCancelled, "refused: cancelled"},
	{stock.ErrReservationConfirmed, "refused: confirmed"},
}

// Answers waits for requests and describes their answers.
func Answers(requests ...<-chan Answer) (answers []string) {
	for _, request := range requests {
		answers = append(answers, (<-request).String())
	}
	return answers
}

// WantAnswers checks what Answers returned.
func WantAnswers(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the answers are %q, want %q", got, want)
	}
}

// Ask starts a deduction of an item.
func (r *BatchReplica) Ask(ctx context.Context, goodsID int64, count int) <-chan Answer {
	return r.Send(ctx, stock.Request{GoodsID: goodsID, Count: count})
}

// Send starts a deduction.
func (r *BatchReplica) Send(ctx context.Context, req stock.Request) <-chan Answer {
	return Start(ctx, r, req)
}

// Gather sends a request for one unit, holds it back on its way to the server, and lets requests for these counts wait
// behind it in this order. They form the next batch once the first request is released.
func (r *BatchReplica) Gather(
	t testing.TB, counts ...int,
) (first <-chan Answer, others []<-chan Answer, release func()) {
	t.Helper()
	var requests []stock.Request
	for _, count := range counts {
		requests = append(requests, stock.Request{Count: count})
	}
	return r.GatherRequests(t, requests...)
}

// GatherRequests is Gather with requests that may have keys.
func (r *BatchReplica) GatherRequests(
	t testing.TB, requests ...stock.Request,
) (first <-chan Answer, others []<-chan Answer, release func()) {
	t.Helper()
	before := r.Proxy.Count()
	release = r.Proxy.Hold()
	t.Cleanup(release)
	first = r.Ask(t.Context(), r.Item, 1)
	serverstest.Eventually(t, "the first request is sent", func() bool { return r.Proxy.Count() > before })
	for i, request := range requests {
		request.GoodsID = r.Item
		others = append(others, r.Send(t.Context(), request))
		serverstest.Eventually(t, "the next request waits", func() bool { return r.Waiting() == i+1 })
	}
	return first, others, release
}
