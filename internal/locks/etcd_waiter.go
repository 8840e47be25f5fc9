package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdWaiter is a place in the queue for a lock. The first in the queue holds it.
type etcdWaiter struct {
	etcd        *Etcd
	session     *etcdSession
	prefix, key string
	revision    int64 // at which key was created; 0 if that is not known
	settled     bool  // the creation is no longer on its way
}

func (e *Etcd) newWaiter(s *etcdSession, key string) *etcdWaiter {
	w := &etcdWaiter{etcd: e, session: s, prefix: "locks/" + nodeName(key) + "/"}
	// Each attempt has its own name, so that deleting one late does not delete the next one.
	w.key = fmt.Sprintf("%s%016x-%d", w.prefix, s.id, e.waiters.Add(1))
	return w
}

// enqueue creates the key and returns whether it is the first. Under TryOnce it creates the key only if it would be the
// first, and fails with ErrHeld otherwise. It also fails if the waiter was withdrawn before.
func (w *etcdWaiter) enqueue(ctx context.Context) (holds bool, err error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(w.withdrawn()), "=", 0)}
	if triesOnce(ctx) { // the queue has no key whose create revision is not 0
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(w.prefix), "=", 0).WithPrefix())
	}
	both, err := w.txn(ctx, conditions,
		clientv3.OpPut(w.key, "", clientv3.WithLease(w.session.id)),
		clientv3.OpGet(w.prefix, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		w.session.lose()
		return false, errSessionOver
	case err != nil:
		w.settled = errors.Is(err, rpctypes.ErrNoSpace) // even so, the key may have been created
		return false, fmt.Errorf("create a waiter in etcd: %w", explain(err))
	case !both.Succeeded && triesOnce(ctx):
		return false, ErrHeld
	case !both.Succeeded:
		return false, errors.New("create a waiter in etcd: it was withdrawn before")
	}
	w.revision = both.Header.Revision
	return both.Responses[1].GetResponseRange().Kvs[0].CreateRevision == w.revision, nil
}

// withdrawn is the key that marks this waiter as withdrawn.
func (w *etcdWaiter) withdrawn() string { return "withdrawn/" + w.key }

// wait waits until the waiter before this one has left, whether it held the lock or gave up. It returns whether there
// was none, so that this one holds the lock.
func (w *etcdWaiter) wait(ctx context.Context) (holds bool, err error) {
	both, err := w.txn(ctx, nil,
		clientv3.OpGet(w.key, clientv3.WithCountOnly()),
		clientv3.OpGet(w.prefix, append(clientv3.WithLastCreate(),
			clientv3.WithMaxCreateRev(w.revision-1), clientv3.WithKeysOnly())...))
	if err != nil {
		return false, fmt.Errorf("read the queue in etcd: %w", err)
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

// awaitDeletion waits until a key that existed at a revision is deleted. The watch survives a restart of the server,
// but does not report that the server is gone, so a small request is sent at intervals.
func (w *etcdWaiter) awaitDeletion(ctx context.Context, key string, revision int64) error {
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // ends the watch
	defer cancel()
	events := w.etcd.client.Watch(watch, key, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	tick := time.NewTicker(min(w.etcd.options.Renew, answerLimit))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.session.Context().Done():
			return errSessionOver
		case <-tick.C:
			if err := w.etcd.ask(ctx); err != nil {
				return fmt.Errorf("etcd stopped answering: %w", err)
			}
		case response, open := <-events:
			switch err := response.Err(); {
			case len(response.Events) > 0, errors.Is(err, rpctypes.ErrCompacted): // compacted: read the queue again
				return nil
			case err != nil:
				return fmt.Errorf("watch the queue in etcd: %w", err)
			case !open:
				return errors.New("watch the queue in etcd: the client was closed")
			}
		}
	}
}

// lease makes the lease of the held lock. It lasts as long as the session. Its end also releases local.
func (w *etcdWaiter) lease(ctx context.Context, key string, local *Lease) *Lease {
	session := w.session.Lease
	lease := newLease(ctx, time.Time{}, uint64(w.revision), func(ctx context.Context) error {
		defer func() { _ = local.Unlock() }() // a Mutex: it cannot fail
		if err := w.unlock(ctx); err != nil {
			return fmt.Errorf("unlock %s: %w", key, err)
		}
		return nil
	})
	lease.members = []*Lease{session}
	unfollow := context.AfterFunc(session.Context(), lease.lose)
	lease.stopWatching = func() { unfollow() }
	lease.abandoned = func() {
		// The session goes on, so the key has to be deleted.
		time.AfterFunc(time.Until(session.Deadline()), func() {
			defer func() { _ = local.Unlock() }() // a Mutex: it cannot fail
			w.takeBack(ctx)
		})
	}
	return lease
}

// unlock deletes the key. No other waiter ever has the same key, so the deletion needs no condition. Versions of etcd
// before 3.4.20 and 3.5.7 refuse a conditional deletion while the space quota is exceeded.
func (w *etcdWaiter) unlock(ctx context.Context) error {
	if w.session.Context().Err() != nil {
		return ErrLeaseLost
	}
	deleted, err := w.etcd.kv.Delete(ctx, w.key)
	switch {
	case err != nil:
		// The session goes on, and the key with it: without this the lock would be held for ever.
		w.etcd.undos.takeBackLater(w.delete)
		return err
	case deleted.Deleted == 0:
		return ErrLeaseLost
	}
	return nil
}

// takeBack deletes the waiter's key, or withdraws if the request to create it may still be on its way.
func (w *etcdWaiter) takeBack(ctx context.Context) {
	undo := w.delete
	if w.revision == 0 && !w.settled {
		undo = w.withdraw
	}
	w.etcd.undos.takeBack(ctx, undo)
}

// withdraw deletes the key, and leaves a mark that prevents a late request from creating it. A server that did not
// answer may carry out requests in another order than they were sent in; the key would then stay in the queue as long
// as the session.
func (w *etcdWaiter) withdraw(ctx context.Context) error {
	if w.session.ends(w.etcd) {
		return nil
	}
	_, err := w.etcd.kv.Txn(ctx).Then(
		clientv3.OpDelete(w.key),
		clientv3.OpPut(w.withdrawn(), "", clientv3.WithLease(w.session.id)),
	).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return nil // nothing can be created in a session that has ended
	case err != nil:
		return err
	}
	lease := w.etcd.options.Lease // no request is that late
	time.AfterFunc(lease, func() {
		w.etcd.undos.takeBack(context.Background(), func(ctx context.Context) error { return w.remove(ctx, w.withdrawn()) })
	})
	return nil
}

func (w *etcdWaiter) delete(ctx context.Context) error { return w.remove(ctx, w.key) }

// remove deletes a key that would otherwise last as long as the session.
func (w *etcdWaiter) remove(ctx context.Context, key string) error {
	if w.session.ends(w.etcd) {
		return nil
	}
	_, err := w.etcd.kv.Delete(ctx, key)
	return err
}

func (w *etcdWaiter) txn(
	ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	return withAnswerLimit(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return w.etcd.kv.Txn(ctx).If(conditions...).Then(ops...).Commit()
	})
}
