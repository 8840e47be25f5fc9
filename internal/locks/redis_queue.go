package locks

import (
	"container/list"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/queue_acquire.lua
	queueAcquireLua string
	//go:embed lua/queue_release.lua
	queueReleaseLua string
	//go:embed lua/queue_leave.lua
	queueLeaveLua string
	//go:embed lua/queue_renew.lua
	queueRenewLua string

	queueAcquireScript = queueScript(queueAcquireLua)
	queueReleaseScript = queueScript(queueReleaseLua)
	queueLeaveScript   = queueScript(queueLeaveLua)
	queueRenewScript   = queueScript(queueRenewLua)
)

func queueScript(text string) *redis.Script {
	return redis.NewScript(strings.Replace(text, "-- include queue.lua\n", queueLua, 1))
}

// The bounds of a turn, which is what a process gets each time that Redis grants it the lock: so many critical sections,
// and no new one after so long. Other processes wait no longer than that for each process before them.
const (
	turnGrants = 16
	turnTime   = 100 * time.Millisecond
)

// A process that waits is passed over once it has been silent for a heartbeat. It asks again every third of that.
const queueHeartbeat = 3 * time.Second

// Those who wait keep their place while Redis does not answer for so long: a failover takes seconds.
const queueOutage = 5 * time.Second

// RedisQueue is a fair, fenced lock for many contenders in few processes. Redis keeps one queue of processes a key; each
// process keeps a queue of its own and hands the lock on inside (lock cohorting: Dice, Marathe and Shavit, "Lock Cohorting",
// PPoPP 2012), for a bounded turn, so that most grants cost no command at all.
//
// What it adds to RedisFenced: order without polling; a waiter that died is passed over within seconds; every command may be
// carried out twice, or late, without harm; one subscription and one scheduler of renewals a process, however many locks.
//
//   - A grant is pushed to the process whose turn it is by the release itself. The message is a hint that may get lost: a
//     waiter asks again at every heartbeat, when the holder's lease ends, and after its subscription was broken.
//   - A turn has a block of tokens. Each critical section has its own, greater than all before.
//   - The lease's context ends at the deadline that is certain on the client's clock, whatever becomes of a renewal.
//   - A waiter that gives up leaves a mark, so that a late command of its own is refused rather than granted.
//
// What breaks: nothing that a store which checks the token cannot refuse. It lives and dies with one Redis, or with what
// Sentinel or Cluster promote in its place, which may have missed the last grants.
type RedisQueue struct {
	client    redis.UniversalClient
	options   Options
	heartbeat time.Duration
	turnTime  time.Duration
	process   string // names this process among those that wait
	heard     *subscription
	renewals  *renewals

	mu      sync.Mutex
	cohorts map[string]*cohort // by key; while somebody holds or waits
	turns   uint64             // begun so far
}

// cohort is all of this process that want one key.
type cohort struct {
	key     string
	waiting list.List // of *queued, in order of arrival
	turn    *turn
}

// queued is a caller of Lock that waits for its turn in the process.
type queued struct {
	ctx    context.Context
	answer chan queueAnswer // has room for the one answer
	place  *list.Element    // nil once it is answered
}

type queueAnswer struct {
	lease *Lease
	err   error
}

// turn is one owner of the lock in Redis: first it asks, then it holds, then it leaves.
type turn struct {
	cohort *cohort
	number uint64 // the owner in Redis is "process/number"

	// While it asks.
	asked time.Time     // when the last question that has been answered was sent
	again chan struct{} // ask again now
	over  chan struct{} // closed when there is nothing left to ask

	// While it holds.
	holds    bool
	token    uint64 // of the next critical section
	grants   int    // left in this turn
	began    time.Time
	deadline time.Time
	lease    *Lease // of the present critical section
	lost     bool
	renewal  renewal
}

// NewRedisQueue makes the lock on one Redis, a Sentinel's master, or a Cluster.
func NewRedisQueue(client redis.UniversalClient, options Options) *RedisQueue {
	q := &RedisQueue{
		client:   client,
		options:  options.withDefaults(),
		turnTime: turnTime,
		process:  rand.Text(),
		cohorts:  map[string]*cohort{},
	}
	q.heartbeat = min(queueHeartbeat, q.options.Lease)
	q.heard = newSubscription(client, "locks:"+q.process, q.hear, q.askAll)
	q.renewals = newRenewals(q.options, q.renew)
	return q
}

// Close ends the subscription and the renewals.
func (q *RedisQueue) Close() error {
	q.renewals.close()
	return q.heard.close()
}

// Lock implements Locker. The grants of one process come in the order in which it was called there.
func (q *RedisQueue) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(key, err)
	}
	w := &queued{ctx: ctx}
	q.mu.Lock()
	c, shared := q.cohorts[key]
	if !shared {
		// Alone, the caller asks by itself: no goroutine, no channel.
		c = &cohort{key: key}
		q.cohorts[key] = c
		t := q.begin(c)
		q.mu.Unlock()
		return q.askFirst(ctx, t, w)
	}
	w.answer = make(chan queueAnswer, 1)
	w.place = c.waiting.PushBack(w)
	q.mu.Unlock()
	return q.wait(c, w)
}

// wait waits for the answer to a queued caller.
func (q *RedisQueue) wait(c *cohort, w *queued) (*Lease, error) {
	select {
	case answer := <-w.answer:
		return answer.lease, answer.err
	case <-w.ctx.Done():
	}
	q.mu.Lock()
	if w.place == nil {
		q.mu.Unlock()
		// It was answered just now. What was granted goes to the next.
		if answer := <-w.answer; answer.lease != nil {
			_ = answer.lease.Unlock()
		}
		return nil, notAcquired(c.key, w.ctx.Err())
	}
	c.waiting.Remove(w.place)
	w.place = nil
	t := c.turn
	abandoned := c.waiting.Len() == 0 && t.over != nil && !t.holds
	if abandoned {
		q.endAsking(t)
		delete(q.cohorts, c.key)
	}
	q.mu.Unlock()
	if abandoned {
		q.leave(w.ctx, t)
	}
	return nil, notAcquired(c.key, w.ctx.Err())
}

// begin makes the next owner of the cohort.
func (q *RedisQueue) begin(c *cohort) *turn {
	q.turns++
	c.turn = &turn{cohort: c, number: q.turns}
	return c.turn
}

// askFirst asks for a turn in the goroutine of the caller.
func (q *RedisQueue) askFirst(ctx context.Context, t *turn, w *queued) (*Lease, error) {
	sent := time.Now()
	reply, err := q.acquire(ctx, t)
	q.mu.Lock()
	c := t.cohort
	switch {
	case err == nil && reply.token > 0:
		q.hold(t, reply.token, q.options.guaranteed(sent), q.options.Renew)
		lease := q.newLease(ctx, t)
		q.mu.Unlock()
		return lease, nil
	case err == nil:
		w.answer = make(chan queueAnswer, 1)
		w.place = c.waiting.PushFront(w)
		q.startAsking(t, sent, reply.wait)
		q.mu.Unlock()
		return q.wait(c, w)
	}
	cause := ended(ctx)
	if cause != nil && c.waiting.Len() > 0 {
		// Its caller gave up; those who came after it go on asking in its place.
		q.startAsking(t, time.Time{}, 0)
		q.mu.Unlock()
		return nil, notAcquired(c.key, errors.Join(cause, err))
	}
	q.refuse(c, err)
	q.mu.Unlock()
	q.leave(ctx, t)
	return nil, notAcquired(c.key, errors.Join(cause, err))
}

// refuse gives everybody who waits the error.
func (q *RedisQueue) refuse(c *cohort, err error) {
	for place := c.waiting.Front(); place != nil; place = c.waiting.Front() {
		q.answer(c, place, nil, notAcquired(c.key, err))
	}
	delete(q.cohorts, c.key)
}

func (q *RedisQueue) answer(c *cohort, place *list.Element, lease *Lease, err error) {
	w := c.waiting.Remove(place).(*queued)
	w.place = nil
	w.answer <- queueAnswer{lease, err}
}

// startAsking goes on asking in the background, on behalf of all who wait: at once where nothing has been answered yet.
func (q *RedisQueue) startAsking(t *turn, asked time.Time, wait time.Duration) {
	t.asked = asked
	t.again = make(chan struct{}, 1)
	t.over = make(chan struct{})
	if asked.IsZero() {
		t.askAgain()
	}
	go q.keepAsking(t, t.over, wait)
}

func (q *RedisQueue) endAsking(t *turn) {
	close(t.over)
	t.over = nil
}

// keepAsking asks until the turn has come, nobody waits for it any more, or Redis has been away for too long.
func (q *RedisQueue) keepAsking(t *turn, over <-chan struct{}, wait time.Duration) {
	answered := time.Now()
	q.heard.start()
	timer := time.NewTimer(q.pause(wait))
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-t.again:
		case <-timer.C:
		}
		sent := time.Now()
		reply, err := q.acquire(context.Background(), t)
		q.mu.Lock()
		switch {
		case t.over == nil:
			// Granted by a message, or given up, while the question was on its way.
			q.mu.Unlock()
			return
		case err == nil && reply.token > 0:
			q.endAsking(t)
			q.hold(t, reply.token, q.options.guaranteed(sent), q.options.Renew)
			q.next(t)
			q.mu.Unlock()
			return
		case err == nil:
			t.asked, answered = sent, sent
		case sent.Sub(answered) >= queueOutage:
			q.endAsking(t)
			q.refuse(t.cohort, err)
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

// pause is how long to wait for a message before asking again, where the holder's lease ends in wait.
func (q *RedisQueue) pause(wait time.Duration) time.Duration {
	return min(wait+time.Millisecond, q.heartbeat/3)
}

// hear is told of a grant.
func (q *RedisQueue) hear(message string) {
	var number, token uint64
	var key string
	fields := strings.SplitN(message, " ", 3)
	if len(fields) == 3 {
		number, _ = strconv.ParseUint(fields[0], 10, 64)
		token, _ = strconv.ParseUint(fields[1], 10, 64)
		key = fields[2]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[key]
	if c == nil || c.turn.over == nil || c.turn.number != number {
		return // a message for a turn that is over, or granted already
	}
	// The grant was made after the last question that was answered, and counts from then on at the earliest.
	deadline := c.turn.asked.Add(q.heartbeat - drift(q.heartbeat))
	if time.Until(deadline) < q.heartbeat/3 {
		c.turn.askAgain() // the answer puts the deadline off
		return
	}
	q.endAsking(c.turn)
	q.hold(c.turn, token, deadline, q.heartbeat/3)
	q.next(c.turn)
}

// askAll asks again for everything that is waited for: messages may have been missed.
func (q *RedisQueue) askAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.cohorts {
		if c.turn.over != nil {
			c.turn.askAgain()
		}
	}
}

func (t *turn) askAgain() {
	select {
	case t.again <- struct{}{}:
	default: // it is about to
	}
}

// hold begins a turn that Redis has granted.
func (q *RedisQueue) hold(t *turn, token uint64, deadline time.Time, renewIn time.Duration) {
	t.holds, t.token, t.grants, t.began, t.deadline = true, token, turnGrants, time.Now(), deadline
	q.renewals.add(t, renewIn)
}

// next hands the turn to the first who waits. There is one: the last to give up ends the asking too.
func (q *RedisQueue) next(t *turn) {
	place := t.cohort.waiting.Front()
	q.answer(t.cohort, place, q.newLease(place.Value.(*queued).ctx, t), nil)
}

// newLease grants the next critical section of the turn.
func (q *RedisQueue) newLease(ctx context.Context, t *turn) *Lease {
	token := t.token
	t.token++
	t.grants--
	t.lease = newLease(ctx, t.deadline, token, func(ctx context.Context) error { return q.unlock(ctx, t) })
	t.lease.abandoned = func() { q.abandon(t) }
	return t.lease
}

// unlock hands the lock on inside the process, or gives it back and asks for the next turn in the same step.
func (q *RedisQueue) unlock(ctx context.Context, t *turn) error {
	c := t.cohort
	q.mu.Lock()
	now := time.Now()
	if c.waiting.Len() > 0 && !t.lost && t.grants > 0 && now.Sub(t.began) < q.turnTime && t.deadline.Sub(now) > q.heartbeat/3 {
		q.next(t)
		q.mu.Unlock()
		return nil
	}
	q.renewals.remove(t)
	following := t
	if c.waiting.Len() > 0 {
		following = q.begin(c)
	}
	q.mu.Unlock()

	sent := time.Now()
	released, reply, err := q.release(ctx, t, following)
	if err != nil {
		takeBackLater(ctx, q.options.Lease, func(ctx context.Context) error {
			_, _, err := q.release(ctx, t, t)
			return err
		})
	}

	q.mu.Lock()
	switch {
	case following != t && err == nil && reply.token > 0 && c.waiting.Len() > 0:
		q.hold(following, reply.token, q.options.guaranteed(sent), q.options.Renew)
		q.next(following)
	case c.waiting.Len() > 0 && following != t && err == nil:
		q.startAsking(following, sent, reply.wait)
	case c.waiting.Len() > 0: // also where they came while it was given back
		if following == t {
			following = q.begin(c)
		}
		q.startAsking(following, time.Time{}, 0)
	default:
		delete(q.cohorts, c.key)
	}
	alone := c.waiting.Len() == 0 && following != t && !following.holds
	q.mu.Unlock()
	if alone {
		q.leave(ctx, following) // all who waited have given up meanwhile
	}

	switch {
	case err != nil:
		return fmt.Errorf("unlock %s: %w", c.key, err)
	case !released:
		return fmt.Errorf("unlock %s: %w", c.key, ErrLeaseLost)
	}
	return nil
}

// abandon ends a turn whose lock is left to end by itself.
func (q *RedisQueue) abandon(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.renewals.remove(t)
	c := t.cohort
	if c.waiting.Len() == 0 {
		delete(q.cohorts, c.key)
		return
	}
	q.startAsking(q.begin(c), time.Time{}, 0)
}

// renew sends a renewal for each of the turns, all at once, and returns what became of each.
func (q *RedisQueue) renew(ctx context.Context, turns []*turn) []error {
	sent := time.Now()
	replies := make([]*redis.Cmd, len(turns))
	_, _ = q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, t := range turns {
			// With its text: a pipeline cannot be told first that a server which has restarted does not know the script.
			replies[i] = queueRenewScript.Eval(ctx, pipe, []string{t.cohort.key}, q.options.Lease.Milliseconds(), q.process+"/"+strconv.FormatUint(t.number, 10))
		}
		return nil
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	errs := make([]error, len(turns))
	for i, t := range turns {
		ours, err := replies[i].Bool()
		switch {
		case err != nil && time.Now().Before(t.deadline):
			errs[i] = err
		case err == nil && ours:
			t.deadline = q.options.guaranteed(sent)
			t.lease.extend(t.deadline)
		default:
			t.lost = true
			t.lease.lose()
			errs[i] = ErrLeaseLost
		}
	}
	return errs
}

// keys of the scripts: see lua/queue.lua.
func queueKeys(key string) []string {
	return []string{key, sibling(key, ":queue"), sibling(key, ":heard"), sibling(key, ":memory")}
}

// queueReply is what acquire in lua/queue.lua returns.
type queueReply struct {
	token uint64        // of a grant; 0 where the owner waits
	wait  time.Duration // until the lease of the holder ends
}

func newQueueReply(reply int64) (queueReply, error) {
	switch {
	case reply > 0:
		return queueReply{token: uint64(reply)}, nil
	case reply < 0:
		return queueReply{wait: time.Duration(-1-reply) * time.Millisecond}, nil
	}
	return queueReply{}, errors.New("the lock was asked for by one who had given it up") // a question that came late
}

// run runs a script for an owner. Where the connection broke it runs it once more: all scripts may be run twice.
func (q *RedisQueue) run(ctx context.Context, script *redis.Script, t *turn, more ...any) *redis.Cmd {
	keys := queueKeys(t.cohort.key)
	args := append([]any{q.options.Lease.Milliseconds(), q.heartbeat.Milliseconds(), turnGrants, q.process, t.number}, more...)
	cmd := script.Run(ctx, q.client, keys, args...)
	if broken(cmd.Err()) && ctx.Err() == nil {
		cmd = script.Run(ctx, q.client, keys, args...)
	}
	return cmd
}

// broken says whether an error is that of a connection which was closed at the other end, perhaps long ago.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (q *RedisQueue) acquire(ctx context.Context, t *turn) (queueReply, error) {
	reply, err := q.run(ctx, queueAcquireScript, t).Int64()
	if err != nil {
		return queueReply{}, err
	}
	return newQueueReply(reply)
}

// release gives a turn back and asks for the following one, unless that is the same.
func (q *RedisQueue) release(ctx context.Context, t, following *turn) (released bool, reply queueReply, err error) {
	if following == t {
		released, err = q.run(ctx, queueReleaseScript, t, "").Bool()
		return released, reply, err
	}
	fields, err := q.run(ctx, queueReleaseScript, t, following.number).Int64Slice()
	if err != nil {
		return false, reply, err
	}
	reply, err = newQueueReply(fields[1])
	return fields[0] == 1, reply, err
}

// leave takes a turn back that may have been granted, or may wait. It runs apart from the caller's context, which has ended.
func (q *RedisQueue) leave(ctx context.Context, t *turn) {
	takeBack(ctx, q.options.Lease, func(ctx context.Context) error {
		return q.run(ctx, queueLeaveScript, t).Err()
	})
}
