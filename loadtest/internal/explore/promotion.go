package explore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/explore/wire"
)

// A replica of Redis that has not received the last write differs from the master in the keys of that write only. So
// when it is promoted, these get the content that they had before the write.

// savedKey is what a key of Redis was before a write.
type savedKey struct {
	name  string
	dump  string // empty: there was no such key
	until time.Time
}

// keysOf lists the keys of Redis among the names of what was touched.
func keysOf(names []string) (keys []string) {
	for _, name := range names {
		if key, ok := strings.CutPrefix(name, "redis:"); ok && !strings.HasPrefix(key, "channel:") {
			keys = append(keys, key)
		}
	}
	return keys
}

// save keeps what a step of Redis is about to change, if a fault may undo it. s.mu is held.
func (s *schedule) save(e *wire.Exchange) {
	if e.Store != "redis" || !slices.ContainsFunc(s.faults, func(f fault) bool { return f.name == Promoted }) {
		return
	}
	keys := keysOf(e.Writes)
	if slices.Contains(e.Writes, everything) {
		keys = append(keys, keysOf(slices.Collect(maps.Keys(s.touched)))...)
	}
	if len(keys) > 0 {
		s.saved = s.lane.save(keys)
	}
}

// save copies keys.
func (l *lane) save(keys []string) (saved []savedKey) {
	ctx, cancel := context.WithTimeout(context.Background(), serverTime)
	defer cancel()
	for _, name := range keys {
		dump, err := l.keys.Dump(ctx, name).Result()
		if !errors.Is(err, redis.Nil) {
			l.fail(err)
		}
		k := savedKey{name: name, dump: dump}
		ttl, err := l.keys.PTTL(ctx, name).Result()
		l.fail(err)
		if ttl > 0 {
			k.until = time.Now().Add(ttl)
		}
		saved = append(saved, k)
	}
	return saved
}

// promote gives keys their content of before. All clients lose their connections, as when a replica is promoted.
func (l *lane) promote(ctx context.Context, saved []savedKey) error {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	for _, r := range l.replicas {
		r.toRedis.CutAll()
	}
	pipe := l.keys.TxPipeline()
	for _, k := range saved {
		ttl := time.Duration(0)
		if !k.until.IsZero() {
			ttl = max(time.Until(k.until), time.Millisecond)
		}
		if k.dump == "" {
			pipe.Del(ctx, k.name)
		} else {
			pipe.RestoreReplace(ctx, k.name, ttl, k.dump)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}
