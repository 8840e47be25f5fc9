package stock

import "context"

// Claim claims goods 1 as the holder of a token does.
func (d Deps) Claim(ctx context.Context, on Store, issuer string, token uint64) error {
	_, err := d.lockable(on).fence(issuer, token, 1).read(ctx, 1)
	return err
}

// Write overwrites the stock of goods 1 as the holder of a token does.
func (d Deps) Write(ctx context.Context, on Store, issuer string, token uint64) error {
	return d.lockable(on).fence(issuer, token, 1).write(ctx, 1, 5)
}

// MaxWaiting is the longest line of a goods.
const MaxWaiting = maxWaiting

// Waiting counts the requests that wait for the batch under way of a goods.
func Waiting(d Deducter, goodsID int64) int {
	shard := queueOf(d).shard(goodsID)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if l, ok := shard.lines[goodsID]; ok {
		return len(l.waiting)
	}
	return 0
}

// Lines counts the goods that have a line.
func Lines(d Deducter) (lines int) {
	q := queueOf(d)
	for i := range q.shards {
		q.shards[i].mu.Lock()
		lines += len(q.shards[i].lines)
		q.shards[i].mu.Unlock()
	}
	return lines
}

func queueOf(d Deducter) *batchQueue {
	if s, ok := d.(*redisScript); ok {
		return &s.queue
	}
	return &d.(*batch).queue
}
