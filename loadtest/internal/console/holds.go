package console

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/scenario"
)

// HoldTime is how long a sale may be held. A lab in which sales are held gives its requests as much time.
const HoldTime = time.Hour

// holdWait is how long a sale may take until its message is held. It is longer than the service waits for a lock.
const holdWait = 12 * time.Second

// heldSale is a sale that cannot go on, because a proxy holds a message of it.
type heldSale struct {
	*tcpproxy.Caught
	Held
	over <-chan struct{} // closed when the sale is answered, or its client has given up
}

func (h *heldSale) release() { h.Release() }

// cut drops the message, and cuts its connection.
func (h *heldSale) cut() { h.Cut(tcpproxy.BeforeRequest) }

// sellAndHold sells, and returns when a message of the sale is held. The proxies cannot tell sales of an item apart:
// they hold the first message that fits. So nothing else may sell until then.
func (c *Console) sellAndHold(
	ctx context.Context, base string, strategy scenario.Strategy, body saleRequest, answered func(),
) error {
	a, err := c.begin("hold")
	if err != nil {
		answered()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holdWait)
	defer cancel()
	arrived, stop := c.catch(strategy, body)
	over, answer := make(chan struct{}), ""
	name := c.sell(base, strategy, body, func(text string) { answer = text; close(over); answered() })
	select {
	case h := <-arrived:
		h.Name, h.over = name, over
		err = c.keep(h)
	case <-over:
		err = conflict("%s is not held: it was answered without a %s (%s)", name, body.Hold, answer)
	case <-ctx.Done():
		err = conflict("%s goes on and is not held: its %s did not come within %v", name, body.Hold, holdWait)
	}
	stop()
	c.end(a)
	c.look(c.ctx)
	return err
}

// catch holds the first message that fits at each replica which may get the sale. stop releases those that were not
// received from arrived, and lets later ones pass.
func (c *Console) catch(strategy scenario.Strategy, body saleRequest) (arrived chan *heldSale, stop func()) {
	arrived = make(chan *heldSale, len(c.lab.Topology.Proxies))
	stopped := make(chan struct{})
	var waiting sync.WaitGroup
	for i, proxies := range c.lab.Topology.Proxies {
		replica := c.lab.Topology.Replicas[i].Name
		if body.Replica != "" && body.Replica != replica {
			continue
		}
		caught := messages.Sale{Strategy: strategy, Store: strategy.Stores[0], Item: shownItem}.Catch(*proxies, body.Hold)
		waiting.Go(func() {
			select {
			case <-caught.Arrived():
				what, text := messages.Describe("its", body.Hold, caught.Data()), shorten(caught.Data())
				arrived <- &heldSale{Caught: caught, Held: Held{Replica: replica, What: what, Text: text}}
			case <-stopped:
				caught.Release()
			}
		})
	}
	return arrived, func() {
		close(stopped)
		waiting.Wait()
		close(arrived)
		for h := range arrived {
			h.Release()
		}
	}
}

// keep lists a sale as held, unless the console has ended: nobody could release it.
func (c *Console) keep(h *heldSale) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		h.Release()
		return errStopped
	}
	c.held = append(c.held, h)
	c.logf("%s: a proxy of %s holds %s", h.Name, h.Replica, h.What)
	return nil
}

// heldSales returns the sales that are held, and forgets those whose connection has ended. c.mu is held.
func (c *Console) heldSales() []*heldSale {
	c.held = slices.DeleteFunc(c.held, func(h *heldSale) bool { return isClosed(h.Answered()) })
	return c.held
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// underWay reports whether more than one request of the page has no answer, apart from sales that are held. c.mu is
// held.
func (c *Console) underWay() bool {
	parked := 0
	for _, h := range c.heldSales() {
		if !isClosed(h.over) {
			parked++
		}
	}
	return c.waiting > parked+1
}

// listHeld lists the sales that are held, for the page.
func (c *Console) listHeld() []Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []Held{}
	for _, h := range c.heldSales() {
		list = append(list, h.Held)
	}
	return list
}

// take removes the sale with this name from those that are held, or all if it is empty, and returns them.
func (c *Console) take(name string) (taken []*heldSale, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goesOn("hold") {
		return nil, errHoldGoesOn // it could take the next message of what is released for its own
	}
	c.held = slices.DeleteFunc(c.heldSales(), func(h *heldSale) bool {
		ends := name == "" || h.Name == name
		if ends {
			taken = append(taken, h)
		}
		return ends
	})
	switch {
	case len(taken) > 0:
		return taken, nil
	case name != "":
		return nil, conflict("%s is not held: it goes on already", name)
	}
	return nil, conflict("nothing is held")
}

type holdsRequest struct {
	Name string `json:"name"` // empty: all
}

// postHolds ends the hold of a sale, or of all if none is named, and waits until the stores have answered.
func (c *Console) postHolds(done string, end func(*heldSale)) func(*http.Request) error {
	return reading(func(r *http.Request, body holdsRequest) error {
		held, err := c.take(body.Name)
		if err != nil {
			return err
		}
		for _, h := range held {
			end(h)
		}
		c.look(c.ctx)
		for _, h := range held {
			select {
			case <-h.Answered():
			case <-r.Context().Done():
				return r.Context().Err()
			}
			c.logf("%s %s", h.Name, done)
		}
		c.look(c.ctx)
		return nil
	})
}

// shownText is how many bytes of a message are shown.
const shownText = 140

// shorten returns the words of a message: a statement of MySQL without its header, or a command of Redis.
func shorten(message []byte) string {
	text := message
	if words := bytes.Split(message, []byte("\r\n")); bytes.HasPrefix(message, []byte("*")) {
		text = nil
		for i := 2; i < len(words); i += 2 { // every other line is a length
			text = append(append(text, words[i]...), ' ')
		}
	} else {
		text = text[min(5, len(text)):] // length, number and kind of the packet
	}
	shown := strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "�")), " ")
	if len(shown) > shownText {
		shown = strings.ToValidUTF8(shown[:shownText], "") + "…"
	}
	return shown
}
