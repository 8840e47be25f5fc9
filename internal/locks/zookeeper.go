package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZooKeeper is the lock recipe of the ZooKeeper documentation: every waiter creates an ephemeral node with a sequence number
// below the lock's node, the smallest number holds, and each other watches only the one before it. A node vanishes with
// the session of its connection.
//
// What it adds: what Etcd does, by a service that many have already: a consensus of servers, waiters that are woken in the
// order of their arrival, one at a time, and a token that needs no counter, the zxid that created the holder's node. The lock
// of the client, zk.Lock, has no context, and leaves its node behind where a watch fails; this one knows its node by a random
// name also where the reply to its creation was lost, and deletes it (TestACutZooKeeperConnectionLeavesNoNode). The lease's
// context ends by the time before the last sign of life was sent (TestAZooKeeperHolderThatIsCutOffLearnsBeforeTheNextIsGranted).
//
// What breaks: all locks of a connection are lost with its session. A process that is stopped does not see its session end,
// and its late write must be refused by the token. So must that of a holder whose server is cut off from the leader of the
// others: it answers for a while (syncLimit), while the leader has ended the session. The node of a key stays for ever.
type ZooKeeper struct {
	conn    *zk.Conn
	root    string
	options Options
	pulse   *pulse
	closed  atomic.Bool
}

// NewZooKeeper makes the lock below the node root, such as "/locks", which everybody may write to. conn belongs to the
// caller, who closes it after the lock. options.Lease must be the session timeout that the connection was made with, and the servers grant it: a shorter
// one loses locks that are still held, a longer one vouches for locks that are not.
func NewZooKeeper(conn *zk.Conn, root string, options Options) *ZooKeeper {
	z := &ZooKeeper{conn: conn, root: path.Clean("/" + root), options: options.withDefaults()}
	z.pulse = newPulse(z.options, func(ctx context.Context) error {
		_, err := answered(ctx, func() (bool, error) {
			exists, _, err := conn.Exists(z.root)
			return exists, err
		})
		return err
	})
	return z
}

// Lock implements Locker. The token is the zxid that created the holder's node.
func (z *ZooKeeper) Lock(ctx context.Context, key string) (*Lease, error) {
	waiting, stop := z.pulse.watch(ctx)
	defer stop()
	for {
		if waiting.Err() != nil {
			return nil, notAcquired(key, waitError(ctx, waiting, nil))
		}
		if z.closed.Load() {
			return nil, notAcquired(key, errors.New("the lock on ZooKeeper was closed"))
		}
		// The name is chosen here, so that the node can be found where the reply to its creation is lost.
		n := &zkNode{z: z, parent: path.Join(z.root, nodeName(key)), name: rand.Text() + "-"}
		err := n.lock(waiting)
		if err == nil {
			var lease *Lease
			if lease, err = n.hold(ctx, key); err == nil {
				return lease, nil
			}
		}
		select { // so that nothing is left behind once Lock has failed
		case <-n.takeBack():
		case <-time.After(undoLimit):
		}
		if ended(waiting) == nil && errors.Is(err, errSessionOver) {
			continue // at the end of the queue, in a new session
		}
		return nil, notAcquired(key, waitError(ctx, waiting, err))
	}
}

// Close ends what goes on in the background: deletions of nodes that are left behind, which the end of the session does
// as well.
func (z *ZooKeeper) Close() error {
	z.closed.Store(true)
	return nil
}

// zkNode is a place in the queue for a lock, or the lock.
type zkNode struct {
	z      *ZooKeeper
	parent string

	asked chan struct{} // closed when the creation has its outcome, which is the two below: read neither before
	name  string        // without its number where it is not known that it was created
	err   error
}

func (n *zkNode) path() string { return n.parent + "/" + n.name }

// lock waits until the node comes first.
func (n *zkNode) lock(ctx context.Context) error {
	if err := n.create(ctx); err != nil {
		return fmt.Errorf("queue up in ZooKeeper: %w", err)
	}
	for {
		before, err := n.before(ctx)
		if err == nil && before == "" {
			return nil
		}
		if err == nil {
			err = n.awaitDeletion(ctx, before)
		}
		if err != nil {
			return fmt.Errorf("wait in ZooKeeper: %w", err)
		}
	}
}

// create creates the node, and those above it where they are missing.
func (n *zkNode) create(ctx context.Context) error {
	everybody := zk.WorldACL(zk.PermAll)
	asked := make(chan struct{})
	n.asked = asked
	_, err := answered(ctx, func() (string, error) {
		defer close(asked) // also where nobody waits for the reply any more
		created, err := n.z.conn.Create(n.path(), nil, zk.FlagEphemeral|zk.FlagSequence, everybody)
		if n.err = err; err == nil {
			n.name = path.Base(created)
		}
		return created, err
	})
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for i, r := range n.parent + "/" {
		if r != '/' || i == 0 {
			continue
		}
		if _, err := answered(ctx, func() (string, error) {
			return n.z.conn.Create(n.parent[:i], nil, zk.FlagPersistent, everybody)
		}); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return n.create(ctx)
}

// before returns the name of the node before this one, and none where this one holds the lock.
func (n *zkNode) before(ctx context.Context) (name string, err error) {
	names, err := n.queue(ctx)
	if err != nil {
		return "", err
	}
	switch i := slices.Index(names, n.name); i {
	case -1:
		return "", errSessionOver
	case 0:
		return "", nil
	default:
		return names[i-1], nil
	}
}

// queue lists the nodes of the lock in their order.
func (n *zkNode) queue(ctx context.Context) ([]string, error) {
	names, err := answered(ctx, func() ([]string, error) {
		names, _, err := n.z.conn.Children(n.parent)
		return names, err
	})
	slices.SortFunc(names, func(a, b string) int { return sequence(a) - sequence(b) })
	return names, err
}

// sequence is the number that the server has appended to a node's name.
func sequence(name string) int {
	number, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return number
}

// awaitDeletion waits until another node has gone. The watch outlives a short outage, and says nothing of the node of this
// waiter: that is looked at now and then. Whether the server answers at all is left to the pulse.
func (n *zkNode) awaitDeletion(ctx context.Context, name string) error {
	gone, err := answered(ctx, func() (<-chan zk.Event, error) {
		_, _, events, err := n.z.conn.GetW(n.parent + "/" + name) // sets no watch where the node is gone, as ExistsW does
		return events, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(n.z.options.Renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone: // or the session is over, which the next look will find
			return nil
		case <-tick.C:
			if _, err := n.stat(ctx); errors.Is(err, errSessionOver) {
				return err
			}
		}
	}
}

// stat returns the node's zxid; errSessionOver where it is gone.
func (n *zkNode) stat(ctx context.Context) (zxid int64, err error) {
	return answered(ctx, func() (int64, error) {
		exists, stat, err := n.z.conn.Exists(n.path())
		switch {
		case errors.Is(err, zk.ErrSessionExpired), err == nil && !exists:
			return 0, errSessionOver
		case err != nil:
			return 0, err
		}
		return stat.Czxid, nil
	})
}

// hold is the lease of the node that comes first. The server counts the session anew from each sign of life.
func (n *zkNode) hold(ctx context.Context, key string) (*Lease, error) {
	type watched struct {
		zxid   int64
		events <-chan zk.Event
	}
	sent := time.Now()
	own, err := answered(ctx, func() (watched, error) {
		_, stat, events, err := n.z.conn.GetW(n.path())
		if err != nil {
			return watched{}, err
		}
		return watched{stat.Czxid, events}, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = errSessionOver
	}
	if err != nil {
		return nil, fmt.Errorf("look at the node in ZooKeeper: %w", err)
	}
	var lease *Lease
	lease = newLease(ctx, n.z.options.guaranteed(sent), uint64(own.zxid), func(ctx context.Context) error {
		lost := errors.Is(context.Cause(lease.Context()), ErrLeaseLost) // before the deletion, which is noticed as a loss is
		err := n.unlock(ctx)
		if lost && !errors.Is(err, ErrLeaseLost) {
			err = errors.Join(ErrLeaseLost, err)
		}
		if err != nil {
			return fmt.Errorf("unlock %s: %w", key, err)
		}
		return nil
	})
	lease.abandoned = func() {
		// The session goes on, and the node with it.
		time.AfterFunc(time.Until(lease.Deadline()), func() { n.takeBack() })
	}
	lease.keepAlive(n.z.options, func(ctx context.Context) error {
		_, err := n.stat(ctx)
		if errors.Is(err, errSessionOver) {
			return ErrLeaseLost
		}
		return err
	})
	go func() {
		select {
		case <-lease.over:
		case event := <-own.events:
			if event.Type != zk.EventNodeDataChanged { // the node is gone, or the session, or the connection was closed
				lease.lose()
			}
		}
	}()
	return lease, nil
}

func (n *zkNode) unlock(ctx context.Context) error {
	_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, n.z.conn.Delete(n.path(), -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired):
		return ErrLeaseLost
	case err != nil:
		n.takeBack() // the session may go on, and would keep the lock for ever
	}
	return err
}

// takeBack deletes the node in the background, be it known that it was created or not, and closes done when it is gone. It
// does not give up before Close: a session outlives any outage that the client does, and keeps the node.
func (n *zkNode) takeBack() (done <-chan struct{}) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for n.remove() != nil && !n.z.closed.Load() {
			time.Sleep(undoPause)
		}
	}()
	return gone
}

// remove waits for the outcome of the creation and of each request of its own: each has one when the connection ends, at the
// latest.
func (n *zkNode) remove() error {
	<-n.asked
	names := []string{n.name}
	switch {
	case errors.Is(n.err, zk.ErrNoNode), errors.Is(n.err, zk.ErrNoServer):
		return nil // it was not created
	case n.err != nil:
		// The connection broke. The next one may be to a server that has yet to hear of what was asked by this one.
		if _, err := n.z.conn.Sync(n.parent); err != nil {
			return err
		}
		all, _, err := n.z.conn.Children(n.parent)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		names = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, n.name) })
	}
	for _, name := range names {
		if err := n.z.conn.Delete(n.parent+"/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// answered makes a request within ctx and answerLimit. The client knows no context: a request that is given up ends in the
// background, when its connection does at the latest.
func answered[T any](ctx context.Context, request func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	return withAnswerLimit(ctx, func(ctx context.Context) (T, error) {
		replies := make(chan reply, 1)
		go func() {
			value, err := request()
			replies <- reply{value, err}
		}()
		select {
		case r := <-replies:
			return r.value, r.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	})
}
