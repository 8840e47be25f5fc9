package locks

import (
	"errors"
	"sync"
	"time"
)

// Lock fails while this many nodes wait for their deletion.
const maxAbandoned = 1024

var errTooManyAbandoned = errors.New("too many nodes of earlier waiters wait for their deletion: " +
	"check whether ZooKeeper answers")

// zkAbandoned deletes nodes whose waiters or holders could not. It does not give up before Close: the session
// may outlast the outage, and the nodes with it. While there are any, one goroutine deletes them.
//
// It is not an undoer, which limits the time of each attempt with a context: ZooKeeper's client takes none, so an
// attempt lasts until its requests are answered or the connection ends.
type zkAbandoned struct {
	mu      sync.Mutex
	nodes   []*zkNode
	running bool
}

func (a *zkAbandoned) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.nodes) >= maxAbandoned
}

func (a *zkAbandoned) add(n *zkNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes = append(a.nodes, n)
	if !a.running {
		a.running = true
		go a.run()
	}
}

func (a *zkAbandoned) run() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.nodes) > 0 {
		n := a.nodes[0]
		a.mu.Unlock()
		err := n.remove()
		if err != nil && !n.z.closed.Load() {
			time.Sleep(undoPause)
		}
		a.mu.Lock()
		a.nodes = a.nodes[1:]
		if err != nil && !n.z.closed.Load() {
			a.nodes = append(a.nodes, n) // the next one may be luckier
		}
	}
	a.nodes, a.running = nil, false
}
