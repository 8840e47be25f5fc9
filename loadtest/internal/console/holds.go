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
	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/scenario"
)

// HoldTime is how long a sale may be held. A lab in which sales are held gives its requests as much time.
const HoldTime = time.Hour

// heldSale is a sale that cannot go on, because a proxy holds a message of it.
type heldSale struct {
	*tcpproxy.Caught
	Held
}

func (h *heldSale) release() { h.Release() }

// cut drops the message, and cuts its connection.
func (h *heldSale) cut() { h.Cut(tcpproxy.BeforeRequest) }

// sellAndHold sells, and returns when a message of the sale is held.
func (c *Console) sellAndHold(
	ctx context.Context, base string, strategy scenario.Strategy, body saleRequest, answered func(),
) error {
	arrived, over := make(chan *heldSale, len(c.lab.Topology.Proxies)), make(chan struct{})
	var waiting sync.WaitGroup
	for i, proxies := range c.lab.Topology.Proxies {
		replica := c.lab.Topology.Replicas[i].Name
		if body.Replica != "" && body.Replica != replica {
			continue
		}
		caught := fault.Sale{Strategy: strategy, Store: strategy.Stores[0], Item: shownItem}.Catch(*proxies, body.Hold)
		waiting.Go(func() {
			select {
			case <-caught.Arrived():
				what, text := fault.Describe("its", body.Hold, caught.Data()), shorten(caught.Data())
				arrived <- &heldSale{caught, Held{Replica: replica, What: what, Text: text}}
			case <-over:
				caught.Release()
			}
		})
	}
	done := make(chan struct{})
	name := c.sell(base, strategy, body, func() { answered(); close(done) })
	var err error
	select {
	case h := <-arrived:
		h.Name = name
		c.mu.Lock()
		c.held = append(c.held, h)
		c.mu.Unlock()
		c.logf("a proxy of %s holds %s: %s", h.Replica, h.What, name)
	case <-done:
		err = conflict("%s was answered without a %s that could be held", name, body.Hold)
	case <-ctx.Done():
		err = ctx.Err()
	}
	close(over)
	waiting.Wait()
	c.look(c.ctx)
	return err
}

// heldSales returns the sales that are held, and forgets those that are not any more.
func (c *Console) heldSales() []*heldSale {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(h *heldSale) bool {
		select {
		case <-h.Answered():
			return true
		default:
			return false
		}
	})
	return slices.Clone(c.held)
}

// listHeld lists the sales that are held, for the page.
func (c *Console) listHeld() []Held {
	list := []Held{}
	for _, h := range c.heldSales() {
		list = append(list, h.Held)
	}
	return list
}

// postHolds ends the hold of a sale, or of all if none is named, and waits until the stores have answered.
func (c *Console) postHolds(done string, end func(*heldSale)) func(*http.Request) error {
	return func(r *http.Request) error {
		body, err := read[struct {
			Name string `json:"name"` // empty: all
		}](r)
		if err != nil {
			return err
		}
		held := slices.DeleteFunc(c.heldSales(), func(h *heldSale) bool { return body.Name != "" && h.Name != body.Name })
		if len(held) == 0 {
			return conflict("nothing is held")
		}
		for _, h := range held {
			end(h)
			select {
			case <-h.Answered():
			case <-r.Context().Done():
				return r.Context().Err()
			}
			c.logf("%s %s", h.Name, done)
		}
		c.look(c.ctx)
		return nil
	}
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
