package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// ZooKeeper is the lock recipe of the ZooKeeper documentation: every waiter creates an ephemeral node with a sequence
// number below the lock's node, the node with the smallest number holds the lock, and each waiter watches only the
// node before its own. A node is deleted with the session of its connection.
//
// What it adds:
//
//   - The same as Etcd, with a service that many already run: a consensus of servers, waiters that wake up one at a
//     time in order of arrival, and a token that needs no counter, the zxid that created the holder's node.
//   - The client's own zk.Lock cannot be cancelled, and leaves its node behind if a watch fails. This lock finds its
//     node by a random name, even if the reply to its creation was lost, and deletes it.
//   - The node above a queue is a container, which the server deletes when it has become empty. This needs ZooKeeper
//     3.5.3 or later.
//   - The lease counts from before the last request was sent.
//
// What still breaks:
//
//   - All locks of a connection are lost with its session.
//   - A process that is stopped does not see its session end: the store must check the token.
//   - The same holds if the holder's server is cut off from the leader: it still answers for a while (syncLimit) after
//     the leader has ended the session.
type ZooKeeper struct {
	conn     *zk.Conn
	root     string
	acl      []zk.ACL
	options  Options
	requests chan struct{} // has an element for each request without a reply
	undos    *undoer
	closed   atomic.Bool
}

// maxZKRequests bounds the requests without a reply, and so the goroutines that wait for replies.
const maxZKRequests = 256

// NewZooKeeper makes the lock below the node root, such as "/locks". It creates its nodes with the permissions acl, or
// open to everybody if there are none; nodes that exist keep theirs. conn belongs to the caller, who closes it after
// the lock. Options.Lease must be the session timeout of conn, and one that the servers grant: with a shorter one,
// locks that are still held count as lost; with a longer one, lost locks count as held.
func NewZooKeeper(conn *zk.Conn, root string, acl []zk.ACL, options Options) *ZooKeeper {
	if len(acl) == 0 {
		acl = zk.WorldACL(zk.PermAll)
	}
	return &ZooKeeper{
		conn: conn, root: path.Clean("/" + root), acl: acl, options: options.withDefaults(),
		requests: make(chan struct{}, maxZKRequests),
		undos:    newUndoer(0), // a node lasts as long as the session
	}
}

// Lock implements Locker. The token is the zxid that created the holder's node.
func (z *ZooKeeper) Lock(ctx context.Context, key string) (*Lease, error) {
	for {
		if ctx.Err() != nil {
			return nil, notAcquired(key, ctx.Err())
		}
		if z.closed.Load() {
			return nil, notAcquired(key, errors.New("the ZooKeeper lock is closed"))
		}
		if err := z.undos.full(); err != nil {
			return nil, notAcquired(key, err)
		}
		// A random name finds the node even if the reply to its creation is lost.
		n := &zkNode{z: z, parent: path.Join(z.root, nodeName(key)), name: rand.Text() + "-"}
		err := n.lock(ctx)
		if err == nil {
			var lease *Lease
			if lease, err = n.hold(ctx, key); err == nil {
				return lease, nil
			}
		}
		n.takeBack()
		if ended(ctx) == nil && errors.Is(err, errSessionOver) {
			continue // at the end of the queue, in a new session
		}
		return nil, notAcquired(key, errors.Join(ended(ctx), err))
	}
}

// Close ends the deletions of nodes that go on in the background. The end of the session deletes those nodes too. It
// does not wait for a deletion that is under way, which may last until the connection ends.
func (z *ZooKeeper) Close() error {
	z.closed.Store(true)
	z.undos.cancel()
	return nil
}

// answered makes a request within ctx and answerLimit. The client does not support contexts: a request that is given
// up ends in the background, at the latest with its connection.
func answered[T any](ctx context.Context, z *ZooKeeper, request func() (T, error)) (T, error) {
	return withAnswerLimit(ctx, func(ctx context.Context) (reply T, err error) {
		if err := z.admit(ctx); err != nil {
			return reply, err
		}
		return awaitReply(ctx, z, request)
	})
}

// admit waits until another request may be made. Each call must be followed by awaitReply.
func (z *ZooKeeper) admit(ctx context.Context) error {
	select {
	case z.requests <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitReply makes a request that was admitted.
func awaitReply[T any](ctx context.Context, z *ZooKeeper, request func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	replies := make(chan reply, 1)
	go func() {
		value, err := request()
		<-z.requests
		replies <- reply{value, err}
	}()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
