package mysql_test

import (
	"context"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// whileStopped returns the context of a request of another replica, which must not wait for the one that is stopped.
func whileStopped(t *testing.T) context.Context { return stock.LimitWait(t.Context(), 0) }

// The batch asks for more than there is. Its replica is stopped after it has read the stock, before it takes what fits.
func TestABatchThatDoesNotFitBlocksNobodyWhileItsReplicaIsStopped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, service *stocktest.Service, id int64) error
		answers   []string // to requests for 2 and 4 units of 3
		left      int64
	}{
		"enough is left for what fits": {sellMeanwhile(1), []string{"0 remain", "sold out at 0"}, 0},
		"too little is left":           {sellMeanwhile(2), []string{"sold out at 1", "sold out at 1"}, 1},
		"a restock makes enough for all": {func(t *testing.T, service *stocktest.Service, id int64) error {
			_, err := service.Restock(whileStopped(t), stock.MySQL, id, 5)
			return err
		}, []string{"6 remain", "2 remain"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newBatchReplica(t, "batch", 4)
			first, others, release := r.Gather(t, 2, 4)
			caught := r.Proxy.Catch(stocktest.Matching(deductFitting))
			release()
			stocktest.WantAnswers(t, stocktest.Answers(first), "3 remain")
			<-caught.Arrived()
			must.Succeed(t, test.meanwhile(t, r.Service, r.Item))
			caught.Release()
			stocktest.WantAnswers(t, stocktest.Answers(others...), test.answers...)
			r.WantLeft(t, test.left)
		})
	}
}

func sellMeanwhile(count int) func(*testing.T, *stocktest.Service, int64) error {
	return func(t *testing.T, service *stocktest.Service, id int64) error {
		_, err := service.Deducter(t, "update", stock.MySQL).Deduct(whileStopped(t), stock.Request{GoodsID: id, Count: count})
		return err
	}
}
