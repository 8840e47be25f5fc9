package stock

import "context"

// Background is work in the background.
type Background struct {
	stop context.CancelFunc
	done chan struct{}
}

// InBackground begins work that lasts until ctx ends.
func InBackground(work func(ctx context.Context)) Background {
	ctx, stop := context.WithCancel(context.Background())
	b := Background{stop, make(chan struct{})}
	go func() {
		defer close(b.done)
		work(ctx)
	}()
	return b
}

// Close ends the work. A transaction under way is rolled back, or committed if it has come that far.
func (b Background) Close() error {
	b.stop()
	<-b.done
	return nil
}
