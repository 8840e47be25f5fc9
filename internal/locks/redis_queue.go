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
//   - A release pushes the grant to the process whose turn it is. The message may get lost, or come late: a waiter asks again
//     three times a heartbeat, when the holder's lease ends, and after its subscription was broken.
//   - A turn has a block of tokens. Each critical section has its own, greater than all before.
//   - The lease's context ends at the deadline that is certain on the client's clock, whatever becomes of a renewal.
//   - A waiter that gives up leaves a mark, so that a late command of its own is refused rather than granted.
//
// What breaks: a holder that is stopped, as with every lock: the store must check the token. It lives and dies with one Redis,
// or with what Sentinel or Cluster promote in its place, which may have missed the last grants: two then hold the lock until
// the earlier one's next renewal, and the later one has the greater token as long as the servers' clocks agree. A lock that
// nobody else wants is slower than RedisLua: tokens and late commands cost calls inside the scripts.
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
	turn    *turn     // the last one begun
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

// turn is one owner of the lock in Redis.
type turn struct {
	cohort *cohort
	number uint64 // the owner in Redis is "process/number"
	state  turnState

	// While it is asked for.
	hinted bool          // heard of before it was known that it has to wait
	asked  time.Time     // when the last question that was answered was sent
	after  uint64        // the last token that had been given out by then: an older one was granted before, and taken away
	again  chan struct{} // ask again now
	over   chan struct{} // closed when there is nothing left to ask

	// While it is held.
	first    uint64 // token
	grants   int    // made so far: the tokens count up
	began    time.Time
	deadline time.Time
	lease    *Lease // of the present critical section
	lost     bool   // and its holder has not noticed: nobody asks for the next turn yet
	renewal  renewal
}

// turnState is what a turn does. It never goes back.
type turnState int

const (
	beginning turnState = iota // its first question is on its way, from the goroutine of a caller
	asking                     // keepAsking asks, on behalf of all who wait
	holding
	ending // it was lost, abandoned or given back, or nobody wants it any more
)

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
	w := &queued{ctx: ctx, answer: make(chan queueAnswer, 1)}
	q.mu.Lock()
	c, shared := q.cohorts[key]
	if !shared {
		// Alone, the caller asks by itself.
		c = &cohort{key: key}
		q.cohorts[key] = c
		t := q.begin(c)
		q.mu.Unlock()
		return q.askFirst(t, w)
	}
	w.place = c.waiting.PushBack(w)
	if c.turn.lost {
		q.startAsking(q.begin(c), time.Time{}, queueReply{}) // its holder is slow to notice
	}
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
	unwanted := c.waiting.Len() == 0 && t.state == asking
	if unwanted {
		q.endAsking(t, ending)
		delete(q.cohorts, c.key)
	}
	q.mu.Unlock()
	if unwanted {
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
func (q *RedisQueue) askFirst(t *turn, w *queued) (*Lease, error) {
	sent := time.Now()
	reply, err := q.acquire(w.ctx, t)
	q.mu.Lock()
	c := t.cohort
	switch {
	case err == nil && reply.granted():
		q.hold(t, reply.token, reply.deadline)
		lease := q.newLease(w.ctx, t)
		q.mu.Unlock()
		return lease, nil
	case err == nil:
		w.place = c.waiting.PushFront(w)
		q.startAsking(t, sent, reply)
		q.mu.Unlock()
		return q.wait(c, w)
	}
	cause := ended(w.ctx)
	if cause != nil && c.waiting.Len() > 0 {
		// Its caller gave up; those who came after it go on asking in its place.
		q.startAsking(t, time.Time{}, queueReply{})
		q.mu.Unlock()
		return nil, notAcquired(c.key, errors.Join(cause, err))
	}
	q.refuse(t, err)
	q.mu.Unlock()
	q.leave(w.ctx, t)
	return nil, notAcquired(c.key, errors.Join(cause, err))
}

// refuse ends a turn, and gives everybody who waits for it the error.
func (q *RedisQueue) refuse(t *turn, err error) {
	t.state = ending
	c := t.cohort
	for place := c.waiting.Front(); place != nil; place = c.waiting.Front() {
		c.answer(place, nil, notAcquired(c.key, err))
	}
	delete(q.cohorts, c.key)
}

func (c *cohort) answer(place *list.Element, lease *Lease, err error) {
	w := c.waiting.Remove(place).(*queued)
	w.place = nil
	w.answer <- queueAnswer{lease, err}
}

// startAsking goes on asking in the background, on behalf of all who wait: at once where nothing has been answered yet, or
// where a message came before the answer.
func (q *RedisQueue) startAsking(t *turn, sent time.Time, reply queueReply) {
	t.state, t.asked, t.after = asking, sent, reply.last
	t.again = make(chan struct{}, 1)
	t.over = make(chan struct{})
	if sent.IsZero() || t.hinted {
		t.askAgain()
	}
	go q.keepAsking(t, t.over, reply.wait)
}

func (q *RedisQueue) endAsking(t *turn, state turnState) {
	t.state = state
	close(t.over)
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
		case t.state != asking:
			// Granted by a message, or given up, while the question was on its way.
			q.mu.Unlock()
			return
		case err == nil && reply.granted():
			q.endAsking(t, holding)
			q.hold(t, reply.token, reply.deadline)
			q.next(t)
			q.mu.Unlock()
			return
		case err == nil:
			t.asked, t.after, answered = sent, reply.last, sent
		case sent.Sub(answered) >= queueOutage:
			close(t.over)
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

// pause is how long to wait for a message before asking again, where the holder's lease ends in wait.
func (q *RedisQueue) pause(wait time.Duration) time.Duration {
	return min(wait+time.Millisecond, q.heartbeat/3)
}

// hear is told of a grant.
func (q *RedisQueue) hear(message string) {
	grant, err := parseGrant(message)
	if err != nil {
		return // of another version: the next question brings it
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[grant.key]
	if c == nil || c.turn.number != grant.number {
		return // the turn is over
	}
	t := c.turn
	switch t.state {
	case beginning:
		t.hinted = true
	case asking:
		// It was granted after the last question that was answered, and counts from then on at the earliest.
		deadline := t.asked.Add(grant.ttl - drift(grant.ttl))
		switch {
		case grant.token <= t.after:
			// It was granted before that, came late, and has ended since.
		case time.Until(deadline) < grant.ttl/3:
			t.askAgain() // the answer puts the deadline off
		default:
			q.endAsking(t, holding)
			q.hold(t, grant.token, deadline)
			q.next(t)
		}
	}
}

// grantMessage is what pass in lua/queue.lua publishes.
type grantMessage struct {
	number, token uint64
	ttl           time.Duration
	key           string
}

func parseGrant(message string) (m grantMessage, err error) {
	fields := strings.SplitN(message, " ", 4)
	if len(fields) != 4 {
		return m, fmt.Errorf("%d fields in %q", len(fields), message)
	}
	number, numberErr := strconv.ParseUint(fields[0], 10, 64)
	ms, ttlErr := strconv.ParseInt(fields[1], 10, 64)
	token, tokenErr := strconv.ParseUint(fields[2], 10, 64)
	return grantMessage{number, token, time.Duration(ms) * time.Millisecond, fields[3]}, errors.Join(numberErr, ttlErr, tokenErr)
}

// askAll asks again for everything that is waited for: messages may have been missed.
func (q *RedisQueue) askAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.cohorts {
		switch c.turn.state {
		case beginning:
			c.turn.hinted = true
		case asking:
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

// hold begins a turn that Redis has granted. A whole lease is first renewed in its time, what is shorter sooner.
func (q *RedisQueue) hold(t *turn, first uint64, deadline time.Time) {
	t.state, t.first, t.began, t.deadline = holding, first, time.Now(), deadline
	q.renewals.add(t, min(q.options.Renew, time.Until(deadline)/2))
}

// next hands the turn to the first who waits. There is one: the last to give up ends the asking too.
func (q *RedisQueue) next(t *turn) {
	place := t.cohort.waiting.Front()
	t.cohort.answer(place, q.newLease(place.Value.(*queued).ctx, t), nil)
}

// newLease grants the next critical section of the turn.
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

// unlock hands the lock on inside the process, or gives it back and asks for the next turn in the same step.
func (q *RedisQueue) unlock(ctx context.Context, t *turn) error {
	c := t.cohort
	q.mu.Lock()
	now := time.Now()
	if t.state == holding && c.waiting.Len() > 0 &&
		t.grants < turnGrants && now.Sub(t.began) < q.turnTime && t.deadline.Sub(now) > q.heartbeat/3 {
		q.next(t)
		q.mu.Unlock()
		return nil
	}
	q.end(t)
	t.lost = false      // from here on it is followed by the turn that this goroutine asks for
	var following *turn // that one, where somebody waits
	current := c.turn == t
	if current && c.waiting.Len() > 0 {
		following = q.begin(c)
	}
	q.mu.Unlock()

	sent := time.Now()
	released, reply, err := q.release(ctx, t, following)
	if err != nil {
		takeBackLater(ctx, q.options.Lease, func(ctx context.Context) error {
			_, _, err := q.release(ctx, t, nil)
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

// follow goes on after a release, with the turn that it asked for, nil where nobody waited by then.
func (q *RedisQueue) follow(ctx context.Context, c *cohort, t *turn, sent time.Time, reply queueReply, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch wanted := c.waiting.Len() > 0; {
	case !wanted:
		delete(q.cohorts, c.key)
		if t != nil {
			t.state = ending
			go q.leave(ctx, t) // all who waited have given up meanwhile
		}
	case t == nil: // they came while it was given back
		q.startAsking(q.begin(c), time.Time{}, queueReply{})
	case err != nil:
		q.startAsking(t, time.Time{}, queueReply{})
	case reply.granted():
		q.hold(t, reply.token, reply.deadline)
		q.next(t)
	default:
		q.startAsking(t, sent, reply)
	}
}

// end ends a turn that was held.
func (q *RedisQueue) end(t *turn) {
	t.state = ending
	q.renewals.remove(t)
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
		q.startAsking(q.begin(c), time.Time{}, queueReply{})
	}
}

// lose ends a turn whose lease has ended. Who waits in the process need not wait for its holder to notice.
func (q *RedisQueue) lose(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != holding {
		return
	}
	q.end(t)
	t.lost = true
	t.lease.lose()
	if t.cohort.waiting.Len() > 0 {
		q.startAsking(q.begin(t.cohort), time.Time{}, queueReply{})
	}
}

// renew sends a renewal for each of the turns, all at once, and returns what became of each.
func (q *RedisQueue) renew(ctx context.Context, turns []*turn) []error {
	sent := time.Now()
	replies := make([]*redis.Cmd, len(turns))
	_, _ = q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, t := range turns {
			// With its text: a pipeline cannot be told first that a server which has restarted does not know the script.
			replies[i] = queueRenewScript.Eval(ctx, pipe, []string{t.cohort.key}, q.options.Lease.Milliseconds(),
				fmt.Sprintf("%s/%d %d", q.process, t.number, t.first))
		}
		return nil
	})
	errs := make([]error, len(turns))
	for i, t := range turns {
		ours, err := replies[i].Bool()
		switch {
		case err != nil:
			errs[i] = err
		case ours:
			q.mu.Lock()
			t.deadline = q.options.guaranteed(sent)
			t.lease.extend(t.deadline)
			q.mu.Unlock()
		default:
			q.lose(t)
			errs[i] = ErrLeaseLost
		}
	}
	return errs
}

// queueKeys are the keys of the scripts: see lua/queue.lua.
func queueKeys(key string) []string {
	return []string{key, sibling(key, ":queue"), sibling(key, ":heard"), sibling(key, ":memory")}
}

// queueReply is what acquire in lua/queue.lua returns.
type queueReply struct {
	token    uint64    // the first of a turn; 0 where the owner waits
	deadline time.Time // of the turn

	wait time.Duration // until the lease of the holder ends
	last uint64        // token that has been given out
}

func (r queueReply) granted() bool { return r.token != 0 }

func (q *RedisQueue) newReply(sent time.Time, reply any) (queueReply, error) {
	switch reply := reply.(type) {
	case int64:
		if reply == 0 {
			return queueReply{}, errors.New("the lock was asked for by one who had given it up") // a question that came late
		}
		return queueReply{token: uint64(reply), deadline: q.options.guaranteed(sent)}, nil
	case []any:
		if len(reply) == 2 {
			ms, _ := reply[0].(int64)
			last, _ := reply[1].(int64)
			return queueReply{wait: time.Duration(ms) * time.Millisecond, last: uint64(last)}, nil
		}
	}
	return queueReply{}, fmt.Errorf("a reply of another version: %v", reply)
}

// run runs a script for an owner. Where the connection broke it runs it once more: all scripts may be run twice.
func (q *RedisQueue) run(ctx context.Context, script *redis.Script, t *turn, more ...any) (any, error) {
	keys := queueKeys(t.cohort.key)
	args := append([]any{q.options.Lease.Milliseconds(), q.heartbeat.Milliseconds(), turnGrants, q.process, t.number}, more...)
	reply, err := script.Run(ctx, q.client, keys, args...).Result()
	if broken(err) && ctx.Err() == nil {
		reply, err = script.Run(ctx, q.client, keys, args...).Result()
	}
	return reply, err
}

// broken says whether an error is that of a connection which was closed at the other end, perhaps long ago.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// acquire asks for a turn. A grant that came so late that it is over again counts anew from another question.
func (q *RedisQueue) acquire(ctx context.Context, t *turn) (reply queueReply, err error) {
	for {
		sent := time.Now()
		answer, err := q.run(ctx, queueAcquireScript, t)
		if err != nil {
			return queueReply{}, err
		}
		reply, err := q.newReply(sent, answer)
		if err != nil || !reply.granted() || time.Now().Before(reply.deadline) || ctx.Err() != nil {
			return reply, err
		}
	}
}

// release gives a turn back, and asks for the following one, unless that is nil.
func (q *RedisQueue) release(ctx context.Context, t, following *turn) (released bool, reply queueReply, err error) {
	sent := time.Now()
	if following == nil {
		answer, err := q.run(ctx, queueReleaseScript, t, t.first, "")
		return answer == int64(1), queueReply{}, err
	}
	answer, err := q.run(ctx, queueReleaseScript, t, t.first, following.number)
	if err != nil {
		return false, queueReply{}, err
	}
	both, _ := answer.([]any)
	if len(both) != 2 {
		return false, queueReply{}, fmt.Errorf("a reply of another version: %v", answer)
	}
	reply, err = q.newReply(sent, both[1])
	return both[0] == int64(1), reply, err
}

// leave takes a turn back that may have been granted, or may wait. It runs apart from the caller's context, which has ended.
func (q *RedisQueue) leave(ctx context.Context, t *turn) {
	takeBack(ctx, q.options.Lease, func(ctx context.Context) error {
		_, err := q.run(ctx, queueLeaveScript, t)
		return err
	})
}
