package locks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

const queueKey = "lock:{1}"

// queueProcess is what one process has: a client and a lock of its own.
type queueProcess struct {
	*locks.RedisQueue
	client redis.UniversalClient
}

func newQueueProcess(t testing.TB, server *redis.Options, o locks.Options) queueProcess {
	client := connect(t, server)
	p := queueProcess{locks.NewRedisQueue(client, o), client}
	t.Cleanup(func() { p.Close() })
	return p
}

// awaitQueue waits until so many processes are in the queue of queueKey.
func awaitQueue(t testing.TB, eye redis.UniversalClient, processes int64) {
	t.Helper()
	serverstest.Eventually(t, fmt.Sprint(processes, " processes wait"), func() bool {
		return eye.ZCard(context.Background(), queueKey+":queue").Val() == processes
	})
}

// scripted is a hook that stands in the way of scripts.
type scripted struct {
	run  func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error
	pipe func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error
}

func (h scripted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scripted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.run == nil || !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		return h.run(ctx, next, cmd)
	}
}

func (h scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.pipe == nil || !strings.HasPrefix(cmds[0].Name(), "eval") {
			return next(ctx, cmds)
		}
		return h.pipe(ctx, next, cmds)
	}
}

// loseReply lets a script be carried out and breaks the connection before its reply, the next time that armed is true.
func loseReply(armed *atomic.Bool) scripted {
	return scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && armed.CompareAndSwap(true, false) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}}
}

func TestRedisQueueAcquiresOnceThoughAskedTwice(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var armed atomic.Bool
	p.client.AddHook(loseReply(&armed))

	armed.Store(true)
	lease := mustLock(t, p, queueKey)
	if armed.Load() {
		t.Fatal("no reply was lost")
	}
	value := eye.Get(t.Context(), queueKey).Val()
	if _, token, _ := strings.Cut(value, " "); token != strconv.FormatUint(lease.Token(), 10) {
		t.Errorf("the lease has token %d, Redis has %q: want that of the first grant", lease.Token(), value)
	}
	mustUnlock(t, lease)
}

func TestRedisQueueReleaseSaysReleasedThoughSentTwice(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var armed atomic.Bool
	first.client.AddHook(loseReply(&armed))

	lease := mustLock(t, first, queueKey)
	granted := lockLater(t, second, queueKey)
	awaitQueue(t, eye, 1)
	armed.Store(true)
	mustUnlock(t, lease)
	if armed.Load() {
		t.Fatal("no reply was lost")
	}
	next := <-granted
	if err := next.Context().Err(); err != nil {
		t.Errorf("the second release took the lock from the next holder: %v", err)
	}
	mustUnlock(t, next)
}

func TestRedisQueueRefusesALateQuestionOfOneWhoGaveUp(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var late redis.Cmder // a question that is stuck on its way until its caller has given up
	p.client.AddHook(scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		if late != nil {
			return next(ctx, cmd)
		}
		late = cmd
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := p.Lock(ctx, queueKey)
	wantNotAcquired(t, err, context.DeadlineExceeded)

	mustUnlock(t, mustLock(t, p, "lock:{2}")) // loads the script
	reply, err := eye.Do(t.Context(), late.Args()...).Int()
	if err != nil || reply != 0 {
		t.Errorf("the late question is answered %d, %v: want 0, for one who has left", reply, err)
	}
	if exists(t, eye, queueKey) || exists(t, eye, queueKey+":queue") {
		t.Error("the late question took the lock, or waits for it")
	}
}

func TestRedisQueueGrantsProcessesInOrderOfArrival(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	eye := connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	var waiters []<-chan *locks.Lease
	for i := range int64(5) {
		waiters = append(waiters, lockLater(t, newQueueProcess(t, server, locks.Options{}), queueKey))
		awaitQueue(t, eye, i+1)
	}
	mustUnlock(t, holder)
	last := holder.Token()
	for i, waiter := range waiters {
		lease := <-waiter
		if lease.Token() <= last {
			t.Errorf("waiter %d has token %d, the holder before it %d", i, lease.Token(), last)
		}
		if waiting := eye.ZCard(t.Context(), queueKey+":queue").Val(); waiting != int64(len(waiters)-i-1) {
			t.Errorf("after grant %d, %d processes wait", i, waiting)
		}
		last = lease.Token()
		mustUnlock(t, lease)
	}
}

// queueUp makes callers of one process wait behind its holder, and returns where they say the order of their grants.
func queueUp(t *testing.T, p queueProcess, callers int, order chan<- *locks.Lease) {
	ctx := patient(t)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for range callers {
		running.Go(func() {
			lease, err := p.Lock(ctx, queueKey)
			if err != nil {
				t.Error(err)
				return
			}
			order <- lease
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	serverstest.Eventually(t, fmt.Sprint(callers, " callers wait"), func() bool { return p.Waiting(queueKey) == callers })
}

func TestRedisQueueHandsOnInsideTheProcessWithoutACommand(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{})
	p.TakeTime()
	var scripts atomic.Int64
	p.client.AddHook(scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		scripts.Add(1)
		return next(ctx, cmd)
	}})
	mustUnlock(t, mustLock(t, p, queueKey)) // the scripts are known now
	holder := mustLock(t, p, queueKey)
	order := make(chan *locks.Lease, locks.TurnGrants)
	queueUp(t, p, locks.TurnGrants-1, order)
	scripts.Store(0)
	mustUnlock(t, holder)
	last := holder.Token()
	for range locks.TurnGrants - 1 {
		lease := <-order
		if lease.Token() != last+1 {
			t.Errorf("token %d after %d: want the next of the block", lease.Token(), last)
		}
		last = lease.Token()
	}
	serverstest.Eventually(t, "the last one has given the lock back", func() bool { return scripts.Load() > 0 })
	if n := scripts.Load(); n != 1 {
		t.Errorf("%d scripts for a whole turn but its first, want only the release", n)
	}
}

func TestRedisQueueEndsATurnForTheProcessesThatWait(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, first, queueKey)
	const callers = 2 * locks.TurnGrants
	order := make(chan *locks.Lease, callers)
	queueUp(t, first, callers, order)
	other := lockLater(t, second, queueKey)
	awaitQueue(t, eye, 1)

	mustUnlock(t, holder)
	lease := <-other
	if before := len(order); before >= locks.TurnGrants {
		t.Errorf("%d callers of the first process came before the second process, want fewer than %d", before, locks.TurnGrants)
	}
	mustUnlock(t, lease)
	for range callers {
		<-order
	}
}

func TestRedisQueueTokensOutliveTheirMemory(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var last uint64
	for _, before := range []func(){
		func() {},
		func() { del(t, eye, queueKey+":memory") },
		func() { // the server's clock was set back by an hour
			eye.HSet(t.Context(), queueKey+":memory", "token", time.Now().Add(time.Hour).UnixMicro())
			last = uint64(time.Now().Add(time.Hour).UnixMicro()) - uint64(time.Minute.Microseconds())
		},
		func() {},
		func() { del(t, eye, queueKey) }, // the lock was lost
	} {
		before()
		lease := mustLock(t, p, queueKey)
		if lease.Token() <= last {
			t.Errorf("token %d after %d", lease.Token(), last)
		}
		last = lease.Token()
		mustUnlock(t, lease)
	}
}

func TestRedisQueueNeedsNoMessage(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, first, queueKey)
	granted := lockLater(t, second, queueKey)
	awaitQueue(t, eye, 1)
	// What the release says to the second process goes to nobody.
	second.Deafen()
	mustUnlock(t, holder)
	mustUnlock(t, <-granted)
}

// A waiter that died is passed over: before its turn once it has been silent, and in its turn as well.
func TestRedisQueuePassesADeadWaiter(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"silent before its turn": true, "dead in its turn": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared.Redis(t)
			eye := connect(t, server)
			holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
			dead := newQueueProcess(t, server, locks.Options{Lease: time.Second})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				dead.Lock(ctx, queueKey)
			}()
			t.Cleanup(func() {
				cancel()
				<-ended
			})
			awaitQueue(t, eye, 1)
			living := lockLater(t, newQueueProcess(t, server, locks.Options{}), queueKey)
			awaitQueue(t, eye, 2)
			if err := dead.client.Close(); err != nil {
				t.Fatal(err)
			}
			if silent {
				head := eye.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]
				serverstest.Eventually(t, "the dead one counts as silent", func() bool {
					now := eye.Time(context.Background()).Val().UnixMilli()
					return eye.ZScore(context.Background(), queueKey+":heard", head).Val() < float64(now)
				})
			}
			mustUnlock(t, holder)
			mustUnlock(t, <-living)
		})
	}
}

func TestRedisQueueWaitsForAnAbandonedLockToEnd(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{Lease: 300 * time.Millisecond}), connect(t, server)
	holder := mustLock(t, p, queueKey)
	order := make(chan *locks.Lease, 1)
	queueUp(t, p, 1, order)
	owner := eye.Get(t.Context(), queueKey).Val()
	deadline := holder.Deadline()
	holder.Abandon()
	lease := <-order
	if time.Now().Before(deadline) {
		t.Error("the lock was granted while the abandoned lease lasted")
	}
	if next := eye.Get(t.Context(), queueKey).Val(); next == owner {
		t.Error("the abandoned lock was handed on inside the process")
	}
	if lease.Token() <= holder.Token() {
		t.Errorf("token %d after %d", lease.Token(), holder.Token())
	}
}

func TestRedisQueueRenewsTheOthersWhereOneFails(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{Lease: 5 * time.Second, Renew: time.Second})
	failing := errors.New("this node does not answer")
	var renewed atomic.Int64
	p.client.AddHook(scripted{pipe: func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
		var others []redis.Cmder
		for _, cmd := range cmds {
			if fmt.Sprint(cmd.Args()[3]) == "lock:{failing}" {
				cmd.SetErr(failing)
			} else {
				others = append(others, cmd)
			}
		}
		if len(others) == 0 {
			return failing
		}
		renewed.Add(1)
		return errors.Join(failing, next(ctx, others))
	}})
	lost, kept := mustLock(t, p, "lock:{failing}"), mustLock(t, p, queueKey)
	<-lost.Context().Done()
	if cause := context.Cause(lost.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
		t.Errorf("the lease that could not be renewed ended with %v", cause)
	}
	serverstest.Eventually(t, "the other was renewed past its first lease", func() bool { return renewed.Load() >= 6 })
	if err := kept.Context().Err(); err != nil {
		t.Errorf("the other's lease ended: %v", err)
	}
	mustUnlock(t, kept)
}

func TestRedisQueueRenewsManyLocksInFewRoundTrips(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{Lease: time.Minute, Renew: time.Second})
	const held = 1000
	var roundTrips, renewals atomic.Int64
	p.client.AddHook(scripted{pipe: func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
		roundTrips.Add(1)
		err := next(ctx, cmds)
		renewals.Add(int64(len(cmds)))
		return err
	}})
	leases := make([]*locks.Lease, held)
	var all sync.WaitGroup
	few := make(chan struct{}, 20) // at once: a thousand would wait for connections
	for i := range leases {
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			lease, err := p.Lock(patient(t), fmt.Sprintf("lock:{%d}", i))
			if err != nil {
				t.Error(err)
			}
			leases[i] = lease
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	serverstest.Eventually(t, "each lock is renewed", func() bool { return renewals.Load() >= held })
	if n := roundTrips.Load(); n > held/10 {
		t.Errorf("%d round trips for %d renewals", n, renewals.Load())
	}
	for _, lease := range leases {
		mustUnlock(t, lease)
	}
}

// One connection hears for all who wait, whatever they wait for.
func TestRedisQueueSubscribesOnceAProcess(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var waiters []<-chan *locks.Lease
	var holders []*locks.Lease
	for i := range 5 {
		key := fmt.Sprintf("lock:{%d}", i)
		holders = append(holders, mustLock(t, first, key))
		waiters = append(waiters, lockLater(t, second, key))
		serverstest.Eventually(t, "the second process waits for "+key, func() bool { return eye.ZCard(context.Background(), key+":queue").Val() == 1 })
	}
	process, _, _ := strings.Cut(eye.ZRange(t.Context(), "lock:{0}:queue", 0, 0).Val()[0], "/")
	channel := "locks:" + process
	serverstest.Eventually(t, "the second process listens", func() bool {
		return eye.PubSubNumSub(context.Background(), channel).Val()[channel] == 1
	})
	for i := range holders {
		mustUnlock(t, holders[i])
		mustUnlock(t, <-waiters[i])
	}
	if n := second.client.PoolStats().PubSubStats.Active; n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
}

// waitFor makes p wait for queueKey behind whoever holds it, with a subscription that works.
func waitFor(t *testing.T, p queueProcess, eye redis.UniversalClient, processes int64) <-chan *locks.Lease {
	t.Helper()
	granted := lockLater(t, p, queueKey)
	awaitQueue(t, eye, processes)
	channel := "locks:" + p.Process()
	serverstest.Eventually(t, "the process listens", func() bool {
		return eye.PubSubNumSub(context.Background(), channel).Val()[channel] == 1
	})
	return granted
}

// A message can come late: after its grant has ended, and after the process has asked again and been told to wait.
func TestRedisQueueIgnoresAGrantThatCameLate(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	granted := waitFor(t, p, eye, 1)
	_, number, _ := strings.Cut(eye.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0], "/")
	del(t, eye, queueKey+":memory") // so that nothing later has been given out when p asks again
	if err := eye.HSet(t.Context(), queueKey+":memory", "token", holder.Token()+1).Err(); err != nil {
		t.Fatal(err)
	}
	p.AskAll()
	serverstest.Eventually(t, "it was told of the last token", func() bool { return p.After(queueKey) == holder.Token()+1 })
	p.Hear(fmt.Sprintf("%s 3000 %d %s", number, holder.Token(), queueKey))
	if p.Waiting(queueKey) != 1 {
		t.Error("the process holds a lock that was granted to it before, and to another since")
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-granted)
}

// A grant that is nearly over, or that nobody can understand, is a reason to ask and no more.
func TestRedisQueueAsksWhereAMessageIsNotEnough(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	granted := waitFor(t, p, eye, 1)
	_, number, _ := strings.Cut(eye.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0], "/")
	for _, message := range []string{number + " 1 9000000000000000 " + queueKey, number + " x y " + queueKey, "?", ""} {
		p.Hear(message)
		if p.Waiting(queueKey) != 1 {
			t.Errorf("%q made the process a holder beside another", message)
		}
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-granted)
}

func TestRedisQueueReliesOnAGrantForAsLongAsItLasts(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{Lease: 30 * time.Second}), connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{Lease: 10 * time.Second}), queueKey) // the grant is as short as its lease
	granted := waitFor(t, p, eye, 1)
	mustUnlock(t, holder)
	lease := <-granted
	deadline := lease.Deadline()
	if ends := time.Now().Add(eye.PTTL(t.Context(), queueKey).Val()); deadline.After(ends) {
		t.Errorf("the process relies on the lock for %v longer than Redis", deadline.Sub(ends))
	}
	mustUnlock(t, lease)
}

func TestRedisQueueTokensRiseThoughRedisForgotTheLastOnes(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	mustUnlock(t, mustLock(t, p, queueKey))
	old := eye.Dump(t.Context(), queueKey+":memory").Val()
	before := mustLock(t, p, queueKey)
	// A replica that had not heard of the last grant is promoted.
	if err := eye.RestoreReplace(t.Context(), queueKey+":memory", time.Hour, old).Err(); err != nil {
		t.Fatal(err)
	}
	del(t, eye, queueKey)
	after := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	mustUnlock(t, after)
}

func TestRedisQueueDoesNotWaitForAHolderThatIsSlowToNoticeItsLoss(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"for one who waits": true, "for one who comes later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared.Redis(t)
			p, eye := newQueueProcess(t, server, locks.Options{Lease: time.Second}), connect(t, server)
			lost := mustLock(t, p, queueKey)
			var next <-chan *locks.Lease
			if waits {
				next = lockLater(t, p, queueKey)
				serverstest.Eventually(t, "it waits", func() bool { return p.Waiting(queueKey) == 1 })
			}
			del(t, eye, queueKey)
			<-lost.Context().Done()
			if !waits {
				next = lockLater(t, p, queueKey)
			}
			lease := <-next
			wantLeaseLost(t, lost.Unlock())
			if !exists(t, eye, queueKey) {
				t.Error("the Unlock of the lost lock took that of the next holder")
			}
			mustUnlock(t, lease)
			mustUnlock(t, mustLock(t, p, queueKey))
		})
	}
}

func TestRedisQueueUnlockAfterALossSaysSoThoughTheNextOfTheProcessHasGone(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{Lease: time.Second}), connect(t, server)
	lost := mustLock(t, p, queueKey)
	del(t, eye, queueKey)
	<-lost.Context().Done()
	mustUnlock(t, mustLock(t, p, queueKey))
	wantLeaseLost(t, lost.Unlock())
}

// The message of a grant can overtake the reply that says to wait for it.
func TestRedisQueueRemembersAMessageThatCameEarly(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, other, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, other, queueKey)
	granted := waitFor(t, p, eye, 1)
	mustUnlock(t, holder)
	mustUnlock(t, <-granted) // p has a subscription now

	holder = mustLock(t, other, queueKey)
	var once sync.Once
	p.client.AddHook(scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		once.Do(func() {
			mustUnlock(t, holder)
			serverstest.Eventually(t, "the message came before the reply", func() bool { return p.Hinted(queueKey) })
		})
		return err
	}})
	mustUnlock(t, mustLock(t, p, queueKey))
}

func TestRedisQueueIsGrantedByTheReleaseItself(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	granted := waitFor(t, p, eye, 1)
	p.client.AddHook(scripted{run: func(context.Context, redis.ProcessHook, redis.Cmder) error {
		return errors.New("no question is answered any more")
	}})
	mustUnlock(t, holder)
	(<-granted).Abandon()
}

func TestRedisQueueLeavesTheQueueWithItsLastCaller(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	go func() {
		defer close(gaveUp)
		if _, err := p.Lock(ctx, queueKey); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want context.Canceled", err)
		}
	}()
	awaitQueue(t, eye, 1)
	cancel()
	<-gaveUp
	if exists(t, eye, queueKey+":queue") || exists(t, eye, queueKey+":heard") {
		t.Error("a process that nobody waits in is still in the queue")
	}
	mustUnlock(t, holder)
	if exists(t, eye, queueKey) {
		t.Error("the lock was granted to a process that nobody waits in")
	}
}

// The holder's lease ended, the first in the queue has not noticed yet, and somebody new asks.
func TestRedisQueueLetsNobodyOvertakeAtAnExpiry(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, late, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	granted := waitFor(t, first, eye, 1)
	del(t, eye, queueKey)
	overtakes := lockLater(t, late, queueKey)
	lease := <-granted
	if owner := eye.Get(t.Context(), queueKey).Val(); !strings.HasPrefix(owner, first.Process()) {
		t.Errorf("%s holds the lock, want the first in the queue, %s", owner, first.Process())
	}
	mustUnlock(t, lease)
	mustUnlock(t, <-overtakes)
}

func TestRedisQueueKeepsTheOrderThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	eye := connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	first := waitFor(t, newQueueProcess(t, server, locks.Options{}), eye, 1)
	head := eye.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]
	if err := eye.ZIncrBy(t.Context(), queueKey+":queue", float64(time.Hour.Microseconds()), head).Err(); err != nil { // it came before that
		t.Fatal(err)
	}
	second := waitFor(t, newQueueProcess(t, server, locks.Options{}), eye, 2)
	if now := eye.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]; now != head {
		t.Errorf("%s overtook %s", now, head)
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-first)
	mustUnlock(t, <-second)
}

func TestRedisQueueAsksSeldomForALockWithoutAnEnd(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, eye := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	if err := eye.Set(t.Context(), queueKey, "somebody else's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	replies := make(chan any, 100)
	p.client.AddHook(scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			replies <- cmd.(*redis.Cmd).Val()
		}
		return err
	}})
	granted := lockLater(t, p, queueKey)
	reply, _ := (<-replies).([]any)
	if len(reply) != 2 || reply[0].(int64) < 1000 {
		t.Errorf("the process is told to ask again in %v ms, want a second or more", reply)
	}
	del(t, eye, queueKey)
	mustUnlock(t, <-granted)
}

func TestRedisQueueLeavesNothingInRedisForEver(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	holding, waiting, eye := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{}), connect(t, server)
	day := func(key string) {
		t.Helper()
		if ttl := eye.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 25*time.Hour {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	holder := mustLock(t, holding, queueKey)
	next := waitFor(t, waiting, eye, 1)
	for _, suffix := range []string{"", ":queue", ":heard", ":memory"} {
		day(queueKey + suffix)
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-next)
	for range 2 { // the paths of a known process
		mustUnlock(t, mustLock(t, holding, queueKey))
	}
	day(queueKey + ":memory")
	if err := eye.PExpire(t.Context(), queueKey+":memory", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, holding, queueKey))
	if ttl := eye.PTTL(t.Context(), queueKey+":memory").Val(); ttl < 23*time.Hour {
		t.Errorf("what was done just now is remembered for %v", ttl)
	}
	lease := mustLock(t, holding, queueKey)
	del(t, eye, queueKey+":memory")
	mustUnlock(t, lease)
	day(queueKey + ":memory")
}

func TestRedisQueueRemembersABoundedNumberOfProcesses(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	client, eye := connect(t, server), connect(t, server)
	for range 300 {
		q := locks.NewRedisQueue(client, locks.Options{})
		mustUnlock(t, mustLock(t, q, queueKey))
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := eye.HLen(t.Context(), queueKey+":memory").Val(); n > 260 {
		t.Errorf("%d fields", n)
	}
}

// The process was stopped between the grant and its hearing of it, for longer than the lease.
func TestRedisQueueGrantsNoLeaseThatIsOver(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{Lease: time.Second})
	var once sync.Once
	p.client.AddHook(scripted{run: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			once.Do(func() { time.Sleep(1100 * time.Millisecond) })
		}
		return err
	}})
	if lease := mustLock(t, p, queueKey); lease.Context().Err() != nil {
		t.Errorf("the lease was over when it was granted: %v", context.Cause(lease.Context()))
	}
}
