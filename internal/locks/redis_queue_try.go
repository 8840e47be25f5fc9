package locks

import (
	"context"
	"errors"
	"time"
)

// tryOnce is Lock under TryOnce. A key that somebody in this process holds or wants is refused without asking Redis. A
// turn that was lost does not count: the lock may be free although its holder has not noticed yet.
func (q *RedisQueue) tryOnce(ctx context.Context, key string) (*Lease, error) {
	q.mu.Lock()
	c, shared := q.cohorts[key]
	if shared && !c.turn.lost {
		q.mu.Unlock()
		return nil, notAcquired(key, ErrHeld)
	}
	if !shared {
		c = q.newCohort(key)
	}
	t := q.newTurn(c)
	t.once = true
	q.mu.Unlock()
	reply, err := q.acquire(ctx, t)
	q.mu.Lock()
	if err == nil && reply.granted() {
		q.hold(t, reply.token, reply.deadline)
		lease := q.newLease(ctx, t)
		q.mu.Unlock()
		return lease, nil
	}
	cause := ended(ctx)
	switch {
	case err != nil && cause == nil:
		q.refuse(t, err)
	case c.waiting.Len() > 0: // they arrived meanwhile, and need a turn that may queue
		t.state = turnEnded
		q.startAsking(q.newTurn(c), time.Time{}, queueReply{})
	default:
		t.state = turnEnded
		delete(q.cohorts, key)
	}
	q.mu.Unlock()
	if err == nil {
		return nil, notAcquired(key, ErrHeld)
	}
	if !notDone(q.client, err) {
		q.leave(ctx, t)
	}
	return nil, notAcquired(key, errors.Join(cause, err))
}
