package locks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// Etcd is a new implementation of the lock in etcd's concurrency package: every waiter creates its own key below the
// lock's, the key with the smallest create revision holds the lock, and each waiter watches only the key before its
// own. The keys are attached to an etcd lease, the session of the process, and are deleted with it. Waiters of one
// process queue locally first.
//
// What it adds:
//
//   - The lock survives the loss of any minority of its servers, and rests on a consensus that does not depend on
//     clocks.
//   - Waiters wake up one at a time, in order of arrival.
//   - The token is the create revision of the holder's key, so it needs no counter.
//   - etcd's own client counts the session from when a renewal is answered, and learns late that it has ended. Here the
//     session counts from before the renewal is sent.
//
// What still breaks:
//
//   - It is slow: every lock takes two writes that a majority of the servers must flush to disk.
//   - etcd keeps the history of all keys, some 200 bytes a lock. Once that exceeds the space quota, etcd refuses every
//     write: the server must be started with --auto-compaction-retention (see docs/locks.md).
//   - All locks of a process are lost with its session.
//   - A process that is stopped does not see its session end: the store must check the token.
//   - If somebody deletes a holder's key, the holder learns of it only when it unlocks.
type Etcd struct {
	client  *clientv3.Client
	kv      clientv3.KV
	leases  clientv3.Lease
	options Options
	undos   *undoer
	local   Mutex
	waiters atomic.Uint64
	closed  atomic.Bool

	opening Mutex // guards session; a Mutex of this package, so that waiting for it can be cancelled
	session *etcdSession
}

// NewEtcd makes the lock. Close ends its session. The client belongs to the caller, who should set DialTimeout,
// DialKeepAliveTime and DialKeepAliveTimeout, by which the client detects a server that stopped answering, and a small
// backoff.Config.MaxDelay (DialOptions, grpc.WithConnectParams): until that has passed, by default two minutes, Lock
// may fail although the servers are back.
//
// etcd counts leases in whole seconds, and its shortest lease is a few election timeouts (2 s by default):
// Options.Lease is rounded up to that.
func NewEtcd(client *clientv3.Client, options Options) *Etcd {
	// The client's own methods wait for a server without limit. Those of kv and leases fail at once if there is none.
	conn := client.ActiveConnection()
	e := &Etcd{
		client:  client,
		kv:      clientv3.NewKVFromKVClient(pb.NewKVClient(conn), nil),
		leases:  clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(conn), nil, 0),
		options: options.withDefaults(),
	}
	e.undos = newUndoer(0) // a key lasts as long as the session
	return e
}

// ask makes a small request that changes nothing.
func (e *Etcd) ask(ctx context.Context) error {
	_, err := withAnswerLimit(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return e.kv.Get(ctx, "locks/", clientv3.WithCountOnly())
	})
	return err
}

// Lock implements Locker. The token is the create revision of the holder's key. The lease has the deadline of the
// session, which is renewed until Close.
func (e *Etcd) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := e.undos.full(); err != nil {
		return nil, notAcquired(key, err)
	}
	local, err := e.local.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	for {
		w, err := e.lock(ctx, key)
		if err == nil {
			return w.lease(ctx, key, local), nil
		}
		if ended(ctx) == nil && errors.Is(err, errSessionOver) {
			continue // at the end of the queue, in a new session
		}
		_ = local.Unlock()
		return nil, notAcquired(key, errors.Join(ended(ctx), err))
	}
}

// lock creates a waiter and waits until it is the first.
func (e *Etcd) lock(ctx context.Context, key string) (*etcdWaiter, error) {
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	if e.client.ActiveConnection().GetState() != connectivity.Ready {
		// If there is no server, this request fails instead of the next one, which would have to be taken back.
		if err := e.ask(ctx); err != nil {
			return nil, fmt.Errorf("connect to etcd: %w", err)
		}
	}
	w := e.newWaiter(s, key)
	holds, err := w.enqueue(ctx)
	if errors.Is(err, ErrHeld) {
		return nil, err // nothing was created
	}
	for err == nil && !holds {
		holds, err = w.wait(ctx)
	}
	if err != nil {
		w.takeBack(ctx)
		return nil, err
	}
	return w, nil
}

// Close ends the session, and with it every lock that is still held. If etcd does not answer, the session ends by
// itself when its lease does: that is not an error.
func (e *Etcd) Close() error {
	opening, err := e.opening.Lock(context.Background(), "")
	if err != nil {
		return err
	}
	defer func() { _ = opening.Unlock() }() // a Mutex: it cannot fail
	e.closed.Store(true)
	if e.session != nil {
		_ = e.session.Unlock()
	}
	e.undos.close()
	return nil
}
