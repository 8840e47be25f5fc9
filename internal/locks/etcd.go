package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd is the lock of etcd's concurrency package, made anew: every waiter writes a key of its own below the lock's, the one
// with the smallest create revision holds, and each other watches only the one before it. The keys hang on a lease of etcd,
// the session of the process, and vanish with it. Waiters of one process queue up in front of that.
//
// What it adds: a lock that outlives any minority of its servers, kept by a consensus that no clock can break; waiters that
// are woken in the order of their arrival, one at a time; and a token that needs no counter, the create revision of the
// holder's key. etcd's own client counts the session from when it hears of a renewal and learns late that it is over; here the
// lease's context ends by the time before the renewal was sent (TestAnEtcdHolderThatIsCutOffLearnsBeforeTheNextIsGranted).
//
// What breaks: every lock is two writes that a majority of the servers must flush, so it is slow. All locks of a process are
// lost with its session. A process that is stopped does not see its session end, and its late write must be refused by
// the token. A key that somebody deleted by hand is missed at the next renewal only (TestADeletedEtcdKeyIsMissed).
type Etcd struct {
	client  *clientv3.Client
	kv      clientv3.KV
	leases  clientv3.Lease
	options Options
	pulse   *pulse
	local   Mutex
	waiters atomic.Uint64
	closed  atomic.Bool

	opening Mutex // guards session, for as long as one takes to open
	session *etcdSession
}

// NewEtcd makes the lock. Close ends its session. The client belongs to the caller, who should make it with a DialTimeout,
// with DialKeepAliveTime and -Timeout, by which it finds out about a server that has fallen silent, and with a small
// backoff.Config.MaxDelay (DialOptions, grpc.WithConnectParams): until then, by default up to two minutes, Lock fails though the
// servers are back.
//
// etcd counts in whole seconds and has a least time to live, of some election timeouts (2 s by default): the lease is
// options.Lease rounded up to that.
func NewEtcd(client *clientv3.Client, options Options) *Etcd {
	// The client's own methods wait for a server to come back, for ever if need be. These fail where there is none.
	conn := client.ActiveConnection()
	e := &Etcd{
		client:  client,
		kv:      clientv3.NewKVFromKVClient(pb.NewKVClient(conn), nil),
		leases:  clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(conn), nil, 0),
		options: options.withDefaults(),
	}
	e.pulse = newPulse(e.options, func(ctx context.Context) error {
		_, err := e.kv.Get(ctx, "locks/", clientv3.WithCountOnly())
		return err
	})
	return e
}

// Lock implements Locker. The token is the create revision of the holder's key. The lease's deadline is that of the
// session, which is renewed until Close.
func (e *Etcd) Lock(ctx context.Context, key string) (*Lease, error) {
	waiting, stop := e.pulse.watch(ctx)
	defer stop()
	local, err := e.local.Lock(waiting, key)
	if err != nil {
		return nil, notAcquired(key, waitError(ctx, waiting, nil))
	}
	for {
		w, err := e.lock(waiting, key, local)
		if err == nil {
			return w.lease(ctx, key), nil
		}
		if ended(waiting) == nil && errors.Is(err, errSessionOver) {
			continue // at the end of the queue, with a new session
		}
		_ = local.Unlock()
		return nil, notAcquired(key, waitError(ctx, waiting, err))
	}
}

// lock waits until a waiter of its own comes first.
func (e *Etcd) lock(ctx context.Context, key string, local *Lease) (*etcdWaiter, error) {
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	w := e.newWaiter(s, key, local)
	holds, err := w.enqueue(ctx)
	for err == nil && !holds {
		holds, err = w.wait(ctx)
	}
	if err != nil {
		w.takeBack(ctx)
		return nil, err
	}
	return w, nil
}

// Close ends the session, and with it every lock that is still held. Where etcd does not answer the session ends by itself,
// with its time to live: that is no error.
func (e *Etcd) Close() error {
	opening, err := e.opening.Lock(context.Background(), "")
	if err != nil {
		return err
	}
	defer opening.Unlock()
	e.closed.Store(true)
	if e.session != nil {
		_ = e.session.Unlock()
	}
	return nil
}

// etcdSession is a lease of etcd: what the keys of this process live by.
type etcdSession struct {
	*Lease
	id clientv3.LeaseID

	mu   sync.Mutex
	held map[string]*Lease // locks by the holder's key
}

// open returns the session, and opens one where there is none or it is over.
func (e *Etcd) open(ctx context.Context) (*etcdSession, error) {
	opening, err := e.opening.Lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer opening.Unlock()
	if e.closed.Load() {
		return nil, errors.New("the lock on etcd was closed")
	}
	if e.session != nil && e.session.Context().Err() == nil {
		return e.session, nil
	}
	sent := time.Now()
	granted, err := withAnswerLimit(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return e.leases.Grant(ctx, int64(math.Ceil(e.options.Lease.Seconds())))
	})
	if err != nil {
		return nil, fmt.Errorf("open a session with etcd: %w", err)
	}
	o := e.options
	o.Lease = time.Duration(granted.TTL) * time.Second
	s := &etcdSession{id: granted.ID, held: map[string]*Lease{}}
	s.Lease = newLease(context.WithoutCancel(ctx), o.guaranteed(sent), 0, func(ctx context.Context) error { return e.revoke(ctx, s.id) })
	s.keepAlive(o, func(ctx context.Context) error { return e.renew(ctx, s) })
	context.AfterFunc(s.Context(), func() {
		if errors.Is(context.Cause(s.Context()), ErrLeaseLost) {
			// By our clock, that is. What is left of it should not keep others waiting.
			takeBackLater(context.Background(), o.Lease, func(ctx context.Context) error { return e.revoke(ctx, s.id) })
		}
	})
	e.session = s
	return s, nil
}

// renew counts the session's time to live anew, and looks whether the keys of the locks that are held are still there. It
// speaks the protocol itself: the client's KeepAliveOnce tries again without a pause while there is no leader.
func (e *Etcd) renew(ctx context.Context, s *etcdSession) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := pb.NewLeaseClient(e.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return err
	}
	renewed, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case renewed.TTL <= 0:
		return ErrLeaseLost
	}
	s.mu.Lock()
	missed := make(map[string]*Lease, len(s.held))
	for key, lease := range s.held {
		missed[key] = lease
	}
	s.mu.Unlock()
	if len(missed) == 0 {
		return nil
	}
	attached, err := e.leases.TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil // the session was renewed all the same
	}
	for _, key := range attached.Keys {
		delete(missed, string(key))
	}
	for _, lease := range missed {
		lease.lose()
	}
	return nil
}

func (e *Etcd) revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := e.leases.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || e.client.Ctx().Err() != nil {
		return nil // as it should be, or there is nothing left to ask with
	}
	return err
}

// etcdWaiter is a place in the queue for a lock, or the lock.
type etcdWaiter struct {
	etcd        *Etcd
	session     *etcdSession
	local       *Lease
	prefix, key string
	revision    int64 // at which key was created
}

func (e *Etcd) newWaiter(s *etcdSession, key string, local *Lease) *etcdWaiter {
	w := &etcdWaiter{etcd: e, session: s, local: local, prefix: "locks/" + nodeName(key) + "/"}
	// A name of its own for each try: one that is taken back late does not take the next one with it.
	w.key = fmt.Sprintf("%s%016x-%d", w.prefix, s.id, e.waiters.Add(1))
	return w
}

// enqueue creates the key, and says whether it is the first. It does not where the waiter has withdrawn before: the request
// was late.
func (w *etcdWaiter) enqueue(ctx context.Context) (holds bool, err error) {
	both, err := w.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(w.withdrawn()), "=", 0)},
		clientv3.OpPut(w.key, "", clientv3.WithLease(w.session.id)),
		clientv3.OpGet(w.prefix, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		w.session.lose()
		return false, errSessionOver
	case err != nil:
		return false, fmt.Errorf("queue up in etcd: %w", err)
	case !both.Succeeded:
		return false, errors.New("queue up in etcd: withdrawn before")
	}
	w.revision = both.Header.Revision
	return both.Responses[1].GetResponseRange().Kvs[0].CreateRevision == w.revision, nil
}

// withdrawn is the key of a mark that this waiter has given up.
func (w *etcdWaiter) withdrawn() string { return "withdrawn/" + w.key }

// wait waits until the waiter before this one has left, whether it held the lock or gave up. Where there is none, this one
// holds the lock.
func (w *etcdWaiter) wait(ctx context.Context) (holds bool, err error) {
	both, err := w.txn(ctx, nil,
		clientv3.OpGet(w.key, clientv3.WithCountOnly()),
		clientv3.OpGet(w.prefix, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(w.revision-1), clientv3.WithKeysOnly())...))
	if err != nil {
		return false, fmt.Errorf("look at the queue in etcd: %w", err)
	}
	if both.Responses[0].GetResponseRange().Count == 0 {
		return false, errSessionOver
	}
	before := both.Responses[1].GetResponseRange().Kvs
	if len(before) == 0 {
		return true, nil
	}
	return false, w.awaitDeletion(ctx, string(before[0].Key), both.Header.Revision)
}

// awaitDeletion waits until a key that was there at a revision is deleted. The watch outlives a restart of the server and
// says nothing of one that is gone: that is left to the pulse.
func (w *etcdWaiter) awaitDeletion(ctx context.Context, key string, revision int64) error {
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // ends the watch
	defer cancel()
	events := w.etcd.client.Watch(watch, key, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.session.Context().Done():
			return errSessionOver
		case response, open := <-events:
			switch err := response.Err(); {
			case len(response.Events) > 0, errors.Is(err, rpctypes.ErrCompacted): // the history is gone: look again
				return nil
			case err != nil:
				return fmt.Errorf("watch the queue in etcd: %w", err)
			case !open:
				return errors.New("watch the queue in etcd: the client was closed")
			}
		}
	}
}

// lease is the lease of the lock that is held. It lives as long as the session.
func (w *etcdWaiter) lease(ctx context.Context, key string) *Lease {
	s := w.session
	var forget func()
	lease := newLease(ctx, time.Time{}, uint64(w.revision), func(ctx context.Context) error {
		forget()
		defer w.local.Unlock()
		if err := w.unlock(ctx); err != nil {
			return fmt.Errorf("unlock %s: %w", key, err)
		}
		return nil
	})
	lease.members = []*Lease{s.Lease}
	lease.abandoned = func() {
		forget()
		// The session goes on, and the key with it.
		time.AfterFunc(time.Until(s.Deadline()), func() {
			defer w.local.Unlock()
			w.takeBack(ctx)
		})
	}
	ends := context.AfterFunc(s.Context(), lease.lose)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[w.key] = lease
	forget = func() {
		ends()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, w.key)
	}
	return lease
}

func (w *etcdWaiter) unlock(ctx context.Context) error {
	if w.session.Context().Err() != nil {
		return ErrLeaseLost
	}
	deleted, err := w.etcd.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(w.key), "=", w.revision)).
		Then(clientv3.OpDelete(w.key)).Commit()
	switch {
	case err != nil:
		// The session goes on, and would keep the lock for ever.
		takeBackLater(ctx, w.etcd.options.Lease, w.delete)
		return err
	case !deleted.Succeeded:
		return ErrLeaseLost
	}
	return nil
}

// takeBack deletes the waiter's key, or withdraws where it is not known that it was created.
func (w *etcdWaiter) takeBack(ctx context.Context) {
	undo := w.delete
	if w.revision == 0 {
		undo = w.withdraw
	}
	takeBack(ctx, w.etcd.options.Lease, undo)
}

// withdraw deletes the key, and leaves a mark that keeps a late request from creating it. A server that was silent may carry
// out requests in another order than they were sent in, and the key would stay in the queue for as long as the session.
func (w *etcdWaiter) withdraw(ctx context.Context) error {
	if w.etcd.over() {
		return nil
	}
	_, err := w.etcd.kv.Txn(ctx).Then(clientv3.OpDelete(w.key), clientv3.OpPut(w.withdrawn(), "", clientv3.WithLease(w.session.id))).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return nil // nothing can be created under a session that is over
	case err != nil:
		return err
	}
	lease := w.etcd.options.Lease // no request is as late as that
	time.AfterFunc(lease, func() {
		takeBack(ctx, lease, func(ctx context.Context) error { return w.etcd.remove(ctx, w.withdrawn()) })
	})
	return nil
}

func (w *etcdWaiter) delete(ctx context.Context) error { return w.etcd.remove(ctx, w.key) }

// remove deletes a key that would otherwise live as long as the session.
func (e *Etcd) remove(ctx context.Context, key string) error {
	if e.over() {
		return nil
	}
	_, err := e.kv.Delete(ctx, key)
	return err
}

// over says that the session ends, and its keys with it, or that there is nothing left to ask with.
func (e *Etcd) over() bool { return e.closed.Load() || e.client.Ctx().Err() != nil }

func (w *etcdWaiter) txn(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return withAnswerLimit(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return w.etcd.kv.Txn(ctx).If(conditions...).Then(ops...).Commit()
	})
}
