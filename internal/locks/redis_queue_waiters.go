package locks

import (
	"container/list"
	"context"
	"errors"
	"time"
)

// cohort is the callers of this process that want one key.
type cohort struct {
	key     string
	keys    queueKeyNames
	waiting list.List // of *waiter, in order of arrival
	turn    *turn     // the last one started
}

// newCohort makes the cohort of a key that nobody in this process holds or wants so far.
func (q *RedisQueue) newCohort(key string) *cohort {
	c := &cohort{key: key, keys: queueKeys(key)}
	q.cohorts[key] = c
	return c
}

// waiter is a caller of Lock that has to wait.
type waiter struct {
	ctx    context.Context
	answer chan waiterAnswer // has room for the one answer
	place  *list.Element     // in cohort.waiting; nil once it is answered
}

type waiterAnswer struct {
	lease *Lease
	err   error
}

func newWaiter(ctx context.Context) *waiter {
	return &waiter{ctx: ctx, answer: make(chan waiterAnswer, 1)}
}

func (c *cohort) answer(place *list.Element, lease *Lease, err error) {
	w := c.waiting.Remove(place).(*waiter)
	w.place = nil
	w.answer <- waiterAnswer{lease: lease, err: err}
}

// wait waits until a caller in the queue is answered, or gives up.
func (q *RedisQueue) wait(c *cohort, w *waiter) (*Lease, error) {
	select {
	case answer := <-w.answer:
		return answer.lease, answer.err
	case <-w.ctx.Done():
	}
	q.mu.Lock()
	if w.place == nil {
		q.mu.Unlock()
		// It was answered just now. The next caller gets what it was granted.
		if answer := <-w.answer; answer.lease != nil {
			_ = answer.lease.Unlock()
		}
		return nil, notAcquired(c.key, w.ctx.Err())
	}
	c.waiting.Remove(w.place)
	w.place = nil
	t := c.turn
	unwanted := c.waiting.Len() == 0 && t.state == turnAsking
	if unwanted {
		q.stopAsking(t, turnEnded)
		delete(q.cohorts, c.key)
	}
	q.mu.Unlock()
	if unwanted {
		q.leave(w.ctx, t)
	}
	return nil, notAcquired(c.key, w.ctx.Err())
}

// askFirst sends the first request for a turn from the goroutine of the caller, for whom nobody waits before.
func (q *RedisQueue) askFirst(ctx context.Context, t *turn) (*Lease, error) {
	sent := time.Now()
	reply, err := q.acquire(ctx, t)
	q.mu.Lock()
	c := t.cohort
	switch {
	case err == nil && reply.granted():
		q.hold(t, reply.token, reply.deadline)
		lease := q.newLease(ctx, t)
		q.mu.Unlock()
		return lease, nil
	case err == nil && !t.once:
		w := newWaiter(ctx)
		w.place = c.waiting.PushFront(w)
		q.startAsking(t, sent, reply)
		q.mu.Unlock()
		return q.wait(c, w)
	}
	cause, goesOn := ended(ctx), false
	switch {
	case c.waiting.Len() == 0, err != nil && cause == nil:
		q.refuse(t, err)
	case t.once: // those that arrived after this caller need a turn that may queue
		t.state = turnEnded
		q.startAsking(q.newTurn(c), time.Time{}, queueReply{})
	default: // they still want the turn that this caller gave up
		goesOn = true
		q.startAsking(t, time.Time{}, queueReply{})
	}
	q.mu.Unlock()
	if err == nil {
		return nil, notAcquired(c.key, ErrHeld)
	}
	if !goesOn && !notDone(q.client, err) {
		q.leave(ctx, t)
	}
	return nil, notAcquired(c.key, errors.Join(cause, err))
}

// refuse ends a turn, and answers its waiters with err.
func (q *RedisQueue) refuse(t *turn, err error) {
	t.state = turnEnded
	c := t.cohort
	for place := c.waiting.Front(); place != nil; place = c.waiting.Front() {
		c.answer(place, nil, notAcquired(c.key, err))
	}
	delete(q.cohorts, c.key)
}

// startAsking asks for a turn in the background, on behalf of all who wait. sent and reply are those of the last
// request that was answered. It asks at once if sent is zero, because there was none, or if a message came before the
// reply.
func (q *RedisQueue) startAsking(t *turn, sent time.Time, reply queueReply) {
	t.state, t.asked, t.after = turnAsking, sent, reply.last
	t.again = make(chan struct{}, 1)
	t.stop = make(chan struct{})
	if sent.IsZero() || t.hinted {
		t.askAgain()
	}
	go q.keepAsking(t, t.stop, reply.wait)
}

func (q *RedisQueue) stopAsking(t *turn, state turnState) {
	t.state = state
	close(t.stop)
}

// keepAsking asks until the turn is granted, nobody waits for it any more, or Redis has been away for too long.
func (q *RedisQueue) keepAsking(t *turn, stop <-chan struct{}, wait time.Duration) {
	answered := time.Now()
	q.messages.start()
	timer := time.NewTimer(q.pause(wait))
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.again:
		case <-timer.C:
		}
		sent := time.Now()
		reply, err := q.acquire(context.Background(), t)
		q.mu.Lock()
		switch {
		case t.state != turnAsking:
			// A message granted it, or the last waiter gave up, while the request was on its way.
			q.mu.Unlock()
			return
		case err == nil && reply.granted():
			q.stopAsking(t, turnHolding)
			q.hold(t, reply.token, reply.deadline)
			q.handOver(t)
			q.mu.Unlock()
			return
		case err == nil:
			t.asked, t.after, answered = sent, reply.last, sent
		case sent.Sub(answered) >= queueOutage:
			close(t.stop)
			q.refuse(t, err)
			q.mu.Unlock()
			q.leave(context.Background(), t)
			return
		default:
			reply.wait = q.options.Poll
		}
		q.mu.Unlock()
		timer.Reset(q.pause(reply.wait))
	}
}

// pause returns how long to wait for a message before asking again, if the holder's lease ends after wait.
func (q *RedisQueue) pause(wait time.Duration) time.Duration {
	return min(wait+time.Millisecond, q.heartbeat/3)
}

// onMessage receives a grant.
func (q *RedisQueue) onMessage(message string) {
	grant, err := parseGrant(message)
	if err != nil {
		return // of another version: the reply to the next request brings the grant
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[grant.key]
	if c == nil || c.turn.number != grant.number {
		return // the turn is over
	}
	t := c.turn
	switch t.state {
	case turnStarting:
		t.hinted = true
	case turnAsking:
		// It was granted after the last request that was answered, so the lease started then at the earliest.
		deadline := t.asked.Add(grant.ttl - drift(grant.ttl))
		switch {
		case grant.token <= t.after:
			// The message is late: this grant has ended, because Redis has given out a later token.
		case time.Until(deadline) < grant.ttl/3:
			t.askAgain() // the reply extends the deadline
		default:
			q.stopAsking(t, turnHolding)
			q.hold(t, grant.token, deadline)
			q.handOver(t)
		}
	}
}

// askAll asks again for every turn that is waited for: messages may have been missed.
func (q *RedisQueue) askAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.cohorts {
		switch c.turn.state {
		case turnStarting:
			c.turn.hinted = true
		case turnAsking:
			c.turn.askAgain()
		}
	}
}
