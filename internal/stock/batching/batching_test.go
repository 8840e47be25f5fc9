package batching_test

import (
	"context"
	"errors"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/batching"
)

// A leader that panics after it has granted units may have been rolled back: its followers must not be told of a sale.
func TestAPanicAfterAGrantLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	var queue batching.Queue
	leading, follow := make(chan struct{}), make(chan struct{})
	queue.Run = func(_ context.Context, b *batching.Batch) {
		close(leading)
		<-follow
		b.Close()
		batching.Allot(b.Undecided, 10)
		panic("the leader is broken")
	}
	request := stock.Request{GoodsID: 1, Count: 1}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = queue.Deduct(t.Context(), request)
	}()
	<-leading
	answer := make(chan error, 1)
	go func() {
		_, err := queue.Deduct(t.Context(), request)
		answer <- err
	}()
	serverstest.Eventually(t, "the follower waits", func() bool { return queue.Waiting(1) == 1 })
	close(follow)
	if err := <-answer; !errors.Is(err, stock.ErrUnknown) {
		t.Errorf("the follower got %v, want unknown", err)
	}
	if <-panicked == nil {
		t.Error("the panic of the leader was swallowed")
	}
	if queue.Lines() != 0 {
		t.Error("the item's line is still led after the panic")
	}
}
