package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zkNode is a place in the queue for a lock. The first in the queue holds it.
type zkNode struct {
	z      *ZooKeeper
	parent string

	// created is closed when the outcome of the creation is known; do not read the two below before. It is nil if the
	// request was not sent.
	created   chan struct{}
	name      string // without its sequence number if it is not known that the node was created
	createErr error
}

func (n *zkNode) path() string { return n.parent + "/" + n.name }

// lock creates the node and waits until it is the first. Under TryOnce it creates none if there are others, and does
// not wait if another was created at the same time.
func (n *zkNode) lock(ctx context.Context) error {
	once := triesOnce(ctx)
	if once {
		if others, err := n.queue(ctx); err != nil || len(others) > 0 {
			return cmp.Or(err, ErrHeld)
		}
	}
	if err := n.create(ctx); err != nil {
		return fmt.Errorf("create a waiter in ZooKeeper: %w", err)
	}
	for {
		before, err := n.before(ctx)
		switch {
		case err == nil && before == "":
			return nil
		case err == nil && once:
			return ErrHeld
		case err == nil:
			err = n.awaitDeletion(ctx, before)
		}
		if err != nil {
			return fmt.Errorf("wait in ZooKeeper: %w", err)
		}
	}
}

// maxCreations bounds how often the queue is created because the server has deleted it meanwhile.
const maxCreations = 10

// create creates the node, and the queue if it is missing.
func (n *zkNode) create(ctx context.Context) error {
	for range maxCreations {
		if err := n.enqueue(ctx); !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := n.createQueue(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("the queue was deleted %d times in a row", maxCreations)
}

// enqueue creates the node. A request that was not admitted creates nothing, so there is nothing to wait for.
func (n *zkNode) enqueue(ctx context.Context) error {
	_, err := withAnswerLimit(ctx, func(ctx context.Context) (node string, err error) {
		if err := n.z.admit(ctx); err != nil {
			return "", err
		}
		created := make(chan struct{})
		n.created = created
		return awaitReply(ctx, n.z, func() (string, error) {
			defer close(created) // even if nobody waits for the reply any more
			node, err := n.z.conn.Create(n.path(), nil, zk.FlagEphemeral|zk.FlagSequence, n.z.acl)
			if n.createErr = err; err == nil {
				n.name = path.Base(node)
			}
			return node, err
		})
	})
	return err
}

// createQueue creates the parent of the nodes, and its own parents if they are missing. The server deletes a container
// some time after its last child, which may be before this node is created
// (TestAZooKeeperQueueThatIsDeletedTooSoonIsCreatedAgain). It does not delete a container that has never had a
// child: if this node cannot be created after its queue, the queue stays until the key has been locked once more.
func (n *zkNode) createQueue(ctx context.Context) error {
	for i, r := range n.parent + "/" {
		if r != '/' || i == 0 {
			continue
		}
		_, err := answered(ctx, n.z, func() (string, error) {
			if i == len(n.parent) {
				return n.z.conn.CreateContainer(n.parent, nil, zk.FlagContainer, n.z.acl)
			}
			return n.z.conn.Create(n.parent[:i], nil, zk.FlagPersistent, n.z.acl)
		})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// before returns the name of the node before this one, or "" if this one holds the lock.
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

// queue lists the nodes of the lock in order. There are none if the server has deleted the queue.
func (n *zkNode) queue(ctx context.Context) ([]string, error) {
	names, err := answered(ctx, n.z, func() ([]string, error) {
		names, _, err := n.z.conn.Children(n.parent)
		return names, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, err
	case slices.ContainsFunc(names, overflowed):
		return n.byZxid(ctx, names)
	}
	slices.SortFunc(names, func(a, b string) int { return sequence(a) - sequence(b) })
	return names, nil
}

// sequence returns the number that the server appended to a node's name. The first hyphen ends the random part; a
// second one is the sign of the number.
func sequence(name string) int {
	_, digits, _ := strings.Cut(name, "-")
	number, _ := strconv.Atoi(digits)
	return number
}

// overflowed reports whether the server's counter, a signed integer of 32 bits, has come to its end. Then the numbers
// say nothing about the order: some versions go on with negative ones, others (3.6 and later) give the greatest again
// and again, and may give negative ones in between.
func overflowed(name string) bool {
	number := sequence(name)
	return number < 0 || number >= math.MaxInt32
}

// byZxid sorts nodes by the transactions that created them, and leaves out those that are gone. It takes a request for
// each, and so is used only where the numbers do not tell the order.
func (n *zkNode) byZxid(ctx context.Context, names []string) ([]string, error) {
	created := map[string]int64{}
	for _, name := range names {
		stat, err := answered(ctx, n.z, func() (*zk.Stat, error) {
			_, stat, err := n.z.conn.Get(n.parent + "/" + name)
			return stat, err
		})
		switch {
		case err == nil:
			created[name] = stat.Czxid
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(created), func(a, b string) int { return cmp.Compare(created[a], created[b]) }), nil
}

// awaitDeletion waits until another node is deleted. The watch neither covers this waiter's own node nor reports that
// the server stopped answering: both are checked at intervals.
func (n *zkNode) awaitDeletion(ctx context.Context, name string) error {
	gone, err := answered(ctx, n.z, func() (<-chan zk.Event, error) {
		_, _, events, err := n.z.conn.GetW(n.parent + "/" + name) // unlike ExistsW, sets no watch if the node is gone
		return events, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(min(n.z.options.Renew, answerLimit))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone: // or the session has ended, which the next request will show
			return nil
		case <-tick.C:
			if _, err := n.stat(ctx); err != nil {
				return err
			}
		}
	}
}

// stat returns the node's zxid, or errSessionOver if the node is gone.
func (n *zkNode) stat(ctx context.Context) (zxid int64, err error) {
	return answered(ctx, n.z, func() (int64, error) {
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

// hold makes the lease of the first node. The server counts the session from the last request.
func (n *zkNode) hold(ctx context.Context, key string) (*Lease, error) {
	sent := time.Now()
	zxid, err := n.stat(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the own node in ZooKeeper: %w", err)
	}
	lease := newLease(ctx, n.z.options.guaranteed(sent), uint64(zxid), func(ctx context.Context) error {
		if err := n.unlock(ctx); err != nil {
			return fmt.Errorf("unlock %s: %w", key, err)
		}
		return nil
	})
	lease.abandoned = func() {
		// The session goes on, so the node has to be deleted.
		time.AfterFunc(time.Until(lease.Deadline()), n.takeBack)
	}
	lease.keepAlive(n.z.options, func(ctx context.Context) error {
		_, err := n.stat(ctx)
		if errors.Is(err, errSessionOver) {
			return ErrLeaseLost
		}
		return err
	})
	return lease, nil
}

func (n *zkNode) unlock(ctx context.Context) error {
	_, err := answered(ctx, n.z, func() (struct{}, error) { return struct{}{}, n.z.conn.Delete(n.path(), -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired):
		return ErrLeaseLost
	case err != nil:
		n.z.undos.takeBackLater(n.undo) // the session may go on, and the node with it: the lock would be held for ever
	}
	return err
}

// takeBack deletes the node, whether or not it is known that it was created. It makes one attempt while the caller
// waits, so that nothing is left behind once Lock has failed. If ZooKeeper does not answer, it goes on in the
// background.
func (n *zkNode) takeBack() {
	if n.created == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	select {
	case <-n.created:
		if _, err := answered(ctx, n.z, func() (struct{}, error) { return struct{}{}, n.remove() }); err == nil {
			return
		}
	case <-ctx.Done():
	}
	n.z.undos.takeBackLater(n.undo)
}

// undo is remove for the undoer. It outlasts its context, because ZooKeeper's client takes none.
func (n *zkNode) undo(context.Context) error { return n.remove() }

// remove deletes the node. It waits for the outcome of the creation, and of its own requests: when the connection
// ends, all of them have one.
func (n *zkNode) remove() error {
	<-n.created
	names := []string{n.name}
	switch {
	case errors.Is(n.createErr, zk.ErrNoNode), errors.Is(n.createErr, zk.ErrNoServer):
		return nil // it was not created
	case n.createErr != nil:
		// The connection broke. The server of the next one may not have seen the creation yet.
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
