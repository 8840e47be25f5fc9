package stock

import (
	"context"
	"io"
	"strings"

	"stock/internal/locks"
)

// standIn is a lock that takes the place of a strategy's: it locks under that strategy's keys, so that the two exclude each
// other. Under the keys of its own strategy it would exclude nobody but itself.
type standIn struct {
	strategy string
	locker   locks.Locker
}

// Lock implements locks.Locker.
func (s standIn) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	_, goods, _ := strings.Cut(key, ":")
	return s.locker.Lock(ctx, s.strategy+":"+goods)
}

// Close closes a lock that works in the background.
func (s standIn) Close() error {
	if closer, ok := s.locker.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
