package guard

import (
	"context"
	"strings"

	"stock/internal/locks"
)

// KeysOf is a lock under the keys of another strategy, so that the two exclude each other. With the keys of its own
// strategy it would not exclude the other.
type KeysOf struct {
	Strategy string
	Prefix   string // of the keys: see stock.Deps
	Locker   locks.Locker
}

// Lock implements locks.Locker.
func (k KeysOf) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	item := key[strings.LastIndexByte(key, ':'):]
	return k.Locker.Lock(ctx, k.Prefix+k.Strategy+item)
}

// Close closes a lock that works in the background.
func (k KeysOf) Close() error { return locks.Close(k.Locker) }
