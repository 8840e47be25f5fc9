package redis

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

// Store keeps the stock of an item in a string key of decimal digits.
//
// A command that writes does not end with its context: once it is sent, giving up would not stop it but only hide
// what it did. The client's read timeout bounds it.
type Store struct {
	Client redis.UniversalClient
	Prefix string // of every key: see stock.Deps

	saleTTL, refusalTTL time.Duration // of records
	wait                time.Duration // how long a cancellation is tried: see stock.Deps
}

// New makes the store of a replica.
func New(d stock.Deps) Store {
	return Store{d.Redis, d.KeyPrefix, d.KeyTTL, d.RefusalTTL, d.LockWait}
}

// Key holds the stock of an item. It has braces around the id, so that all keys of one item share a hash slot of Redis
// Cluster.
func (s Store) Key(goodsID int64) string {
	return s.Prefix + "stock:{" + strconv.FormatInt(goodsID, 10) + "}"
}

// EpochKey holds the epoch of an item's stock. If there is none, the epoch is 0.
func (s Store) EpochKey(goodsID int64) string { return s.Key(goodsID) + ":epoch" }

// StreamKey holds the stream of an item's sales, for the strategy redis-stream. It exists only while the item is being
// sold.
func (s Store) StreamKey(goodsID int64) string { return s.Key(goodsID) + ":sales" }

// StreamIndexKey is a set of the items that have a stream. In a Cluster one master has this set. If that master is
// down, items on the others are still sold: the replica remembers them and adds them to the index later.
func (s Store) StreamIndexKey() string { return s.Prefix + "stock:streams" }

// fenceKey holds the token of the last sale through the fence: "token issuer".
func (s Store) fenceKey(goodsID int64) string { return s.Key(goodsID) + ":fence" }

// RecordKey holds the answer to a client's idempotency key. In a Cluster, a script reaches only one hash slot, so the
// record is beside the item, and the same key for another item is another key.
func (s Store) RecordKey(goodsID int64, key string) string {
	if s.cluster() {
		return s.Key(goodsID) + ":key:" + key
	}
	return s.Prefix + "stock:key:" + key
}

// writableKey does not exist.
func (s Store) writableKey() string { return s.Prefix + "stock:writable" }
