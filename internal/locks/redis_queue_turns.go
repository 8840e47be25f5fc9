package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// turn is one owner of the lock in Redis.
type turn struct {
	cohort *cohort
	number uint64 // the owner in Redis is "process/number"
	once   bool   // it takes no place in the queue: it is granted by the first request, or ends
	state  turnState

	// While it is asked for.
	hinted bool          // a message came before the reply that says to wait
	asked  time.Time     // when the last request that was answered was sent
	after  uint64        // the last token given out by then: a grant with an older token has ended
	again  chan struct{} // ask again now
	stop   chan struct{} // closed to stop asking

	// While it is held.
	first    uint64 // token of the block
	grants   int    // critical sections so far, each with the next token
	started  time.Time
	deadline time.Time
	lease    *Lease // of the current critical section
	lost     bool   // its lease ended, its holder has not released it yet, and nobody asks for the next turn yet
	renewal  *time.Timer
}

// turnState is the state of a turn. It only moves forward.
type turnState int

const (
	turnStarting turnState = iota // the first request is on its way, from the goroutine of a caller
	turnAsking                    // keepAsking asks, on behalf of all who wait
	turnHolding
	turnEnded // it was lost, abandoned or released, or nobody wants it any more
)

// newTurn makes the next turn of the cohort.
func (q *RedisQueue) newTurn(c *cohort) *turn {
	q.turns++
	c.turn = &turn{cohort: c, number: q.turns}
	return c.turn
}

// askAgain makes keepAsking send a request now.
func (t *turn) askAgain() {
	select {
	case t.again <- struct{}{}:
	default: // a request is already due
	}
}

// hold starts a turn that Redis has granted. A whole lease is first renewed after the usual pause, a shorter one
// sooner.
func (q *RedisQueue) hold(t *turn, first uint64, deadline time.Time) {
	t.state, t.first, t.started, t.deadline = turnHolding, first, time.Now(), deadline
	t.renewal = time.AfterFunc(min(q.options.Renew, time.Until(deadline)/2), func() { q.keepAlive(t) })
}

// keepAlive renews a turn, and does that again until the turn has ended.
func (q *RedisQueue) keepAlive(t *turn) {
	ctx, cancel := context.WithTimeout(context.Background(), q.options.Renew)
	defer cancel()
	sent := time.Now()
	err := q.renew(ctx, t.cohort.key, fmt.Sprintf("%s/%d %d", q.process, t.number, t.first))
	if errors.Is(err, ErrLeaseLost) {
		q.lose(t)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case t.state != turnHolding || q.closed:
	case err != nil:
		t.renewal.Reset(q.options.Renew / 10)
	default:
		t.deadline = q.options.guaranteed(sent)
		t.lease.extend(t.deadline)
		t.renewal.Reset(q.options.Renew)
	}
}

// handOver gives the lock to the first waiter of the process. There is one: the last waiter to give up also stops the
// asking.
func (q *RedisQueue) handOver(t *turn) {
	place := t.cohort.waiting.Front()
	t.cohort.answer(place, q.newLease(place.Value.(*waiter).ctx, t), nil)
}

// newLease makes the lease of the next critical section of the turn.
func (q *RedisQueue) newLease(ctx context.Context, t *turn) *Lease {
	t.lease = &Lease{
		token:     t.first + uint64(t.grants),
		release:   func(ctx context.Context) error { return q.unlock(ctx, t) },
		abandoned: func() { q.abandon(t) },
		expired:   func() { q.lose(t) },
	}
	t.grants++
	t.lease.begin(ctx, t.deadline)
	return t.lease
}

// unlock hands the lock over inside the process, or releases it and asks for the next turn in the same step.
func (q *RedisQueue) unlock(ctx context.Context, t *turn) error {
	c := t.cohort
	q.mu.Lock()
	now := time.Now()
	if t.state == turnHolding && c.waiting.Len() > 0 &&
		t.grants < turnGrants && now.Sub(t.started) < q.turnTime && t.deadline.Sub(now) > q.heartbeat/3 {
		q.handOver(t)
		q.mu.Unlock()
		return nil
	}
	q.end(t)
	t.lost = false      // from now on, this goroutine asks for the next turn
	var following *turn // the next turn; nil if nobody waits
	current := c.turn == t
	if current && c.waiting.Len() > 0 {
		following = q.newTurn(c)
	}
	q.mu.Unlock()

	sent := time.Now()
	released, reply, err := q.release(ctx, t, following)
	if err != nil {
		owner, first := t.owner(), t.first
		q.undos.takeBackLater(func(ctx context.Context) error {
			_, err := q.run(ctx, queueReleaseScript, owner, first)
			return err
		})
	}
	if current {
		q.follow(ctx, c, following, sent, reply, err)
	}
	switch {
	case err != nil:
		return fmt.Errorf("unlock %s: %w", c.key, err)
	case !released:
		return fmt.Errorf("unlock %s: %w", c.key, ErrLeaseLost)
	}
	return nil
}

// follow goes on after a release with the turn t that it asked for. t is nil if nobody waited when the release was
// sent.
func (q *RedisQueue) follow(ctx context.Context, c *cohort, t *turn, sent time.Time, reply queueReply, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch wanted := c.waiting.Len() > 0; {
	case !wanted:
		delete(q.cohorts, c.key)
		if t != nil {
			t.state = turnEnded
			go q.leave(ctx, t) // all waiters have given up since
		}
	case t == nil: // they arrived during the release
		q.startAsking(q.newTurn(c), time.Time{}, queueReply{})
	case err != nil:
		q.startAsking(t, time.Time{}, queueReply{})
	case reply.granted():
		q.hold(t, reply.token, reply.deadline)
		q.handOver(t)
	default:
		q.startAsking(t, sent, reply)
	}
}

// end ends a turn that was held.
func (q *RedisQueue) end(t *turn) {
	t.state = turnEnded
	t.renewal.Stop()
}

// abandon ends a turn whose lock is left to end by itself.
func (q *RedisQueue) abandon(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(t)
	switch c := t.cohort; {
	case c.turn != t: // lost before
	case c.waiting.Len() == 0:
		delete(q.cohorts, c.key)
	default:
		q.startAsking(q.newTurn(c), time.Time{}, queueReply{})
	}
}

// lose ends a turn whose lease has ended. The waiters of the process need not wait until the holder notices.
func (q *RedisQueue) lose(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != turnHolding {
		return
	}
	q.end(t)
	t.lost = true
	t.lease.lose()
	if t.cohort.waiting.Len() > 0 {
		q.startAsking(q.newTurn(t.cohort), time.Time{}, queueReply{})
	}
}
