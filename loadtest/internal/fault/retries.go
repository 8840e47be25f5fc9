package fault

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// retryScenarios are stories of a client that does not know what became of its request, and sends it again.
var retryScenarios = []Scenario{
	commitUnknown("before", tcpproxy.BeforeRequest, units, commitLost),
	commitUnknown("after", tcpproxy.BeforeReply, units-1, retryClaim),
	clientTimesOut,
}

// retryClaim is what the catalogue claims about a request that is sent again.
func retryClaim(s scenario.Strategy) Claim {
	if s.Claim.ClientRetry == "deducts-again" {
		return claim(s.Claim.ClientRetry, report.Unsafe)
	}
	return claim(s.Claim.ClientRetry, report.Safe)
}

// commitLost is claimed if the sale never reached MySQL: only the second request sells. A lock with a lease and without
// a fence is kept until its lease ends, because its holder cannot know that.
func commitLost(s scenario.Strategy) Claim {
	if s.Claim.HolderCrash == "blocks-until-lease-ends" && s.Claim.LateWrite == "loses-updates" {
		return claim("blocks-until-lease-ends", report.Blocked)
	}
	return claim("sells-once", report.Safe)
}

// commitUnknown is the story of a connection to MySQL that breaks around COMMIT. left is what MySQL must have then.
func commitUnknown(variant string, at tcpproxy.CutPoint, left int64, claimed func(scenario.Strategy) Claim) Scenario {
	return Scenario{
		Name: "commit-unknown/" + variant,
		Title: "The connection to MySQL is cut " + variant +
			" MySQL has committed the sale, and the client sends its request again.",
		Applies: func(s scenario.Strategy) string {
			if s.Baseline() || s.Stores[0] == oracle.Redis {
				return "it commits nothing in MySQL"
			}
			return ""
		},
		Claim:  claimed,
		Deploy: deployWith("--lease=" + lostLease.String()),
		Play: func(ctx context.Context, s *Stage) error {
			commit := s.storeProxy(s.Victim).Catch(s.decides())
			defer commit.Release()
			first := s.start(ctx, order{client: "A", at: s.Victim})
			if err := first.caught(ctx, commit); err != nil {
				return err
			}
			commit.Cut(at)
			if err := first.wait(); err != nil {
				return err
			}
			stock, err := s.Oracle.Stock(ctx, s.Store, []int64{s.Item})
			switch {
			case err != nil:
				return err
			case first.op.Outcome != history.Unknown || stock[s.Item] != left:
				return fmt.Errorf("client A was told %q, and MySQL has %d units", first.op.Outcome, stock[s.Item])
			}
			s.Provef("the proxy cut the connection %s the sale's %d bytes reached MySQL, which now has %d units",
				variant, commit.Bytes(), left)
			return s.buy(ctx, s.again(), time.Now())
		},
	}
}

// lostLease is so long that nobody takes a lock that is kept until it ends for one that was given back.
const lostLease = 2 * lease

// deployWith starts the replicas on the servers of the lab, with more arguments.
func deployWith(args ...string) func(context.Context, *Lab) (*Deployment, error) {
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		return l.deploy(ctx, l.Topology.Addresses(), args...)
	}
}

// again is A's request, which is sent again to the survivor.
func (s *Stage) again() order {
	return order{client: "A, again,", name: "A", at: s.Survivor, again: s.Strategy.Idempotent}
}

// clientTimesOut is the story of a client that is less patient than the service.
var clientTimesOut = Scenario{
	Name:    "client-times-out",
	Title:   "The client gives up while its sale is on its way to the store, and sends its request again.",
	Applies: everyStrategy,
	Claim:   retryClaim,
	Play: func(ctx context.Context, s *Stage) error {
		// The first sale of an item may need more messages: redis-stream creates its stream. In the store slots, A's first
		// message might go to the slot that C has emptied, and would then decide nothing.
		if s.Store != oracle.Slots {
			if _, err := s.send(ctx, order{client: "C", at: s.Victim}); err != nil {
				return err
			}
		}
		to, at := s.Store, s.storeProxy(s.Victim)
		if s.Strategy.WriteThrough { // the sale is made when the second store has it
			to, at = oracle.MySQL, s.Victim.MySQL
		}
		sale := at.Catch(s.completes())
		defer sale.Release()
		impatient, giveUp := context.WithCancel(ctx)
		defer giveUp()
		first := s.start(impatient, order{client: "A", at: s.Victim})
		if err := first.caught(ctx, sale); err != nil {
			return err
		}
		time.AfterFunc(clientPatience, giveUp)
		if err := first.wait(); err != nil {
			return err
		}
		second := s.storeProxy(s.Survivor).Catch(s.mentionsItem)
		defer second.Release()
		bought := make(chan error, 1)
		s.inBackground(func() { bought <- s.buy(ctx, s.again(), time.Now()) })
		select {
		case <-second.Arrived():
		case err := <-bought:
			return fmt.Errorf("the second request of A was answered before it was seen on the wire (%v)", err)
		case <-ctx.Done():
			return ctx.Err()
		}
		s.Provef("the victim's sale of %d bytes is held on its way to %s while the survivor works on A's second request",
			sale.Bytes(), to)
		sale.Release()
		if err := answer(ctx, sale); err != nil {
			return err
		}
		s.Stepf("A's first sale has reached %s", to)
		second.Release()
		return <-bought
	},
}

// clientPatience is how long the client waits for an answer once its sale is on its way to the store.
const clientPatience = 200 * time.Millisecond

// caught waits until a message of the request is held. The request must not be answered before that.
func (p *pending) caught(ctx context.Context, message *tcpproxy.Caught) error {
	select {
	case <-message.Arrived():
		return nil
	case <-p.done:
		if p.err != nil {
			return p.err
		}
		return fmt.Errorf("the client was answered before its sale was seen on the wire: %s", p.op.Outcome)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storeProxy is the proxy between a replica and the store.
func (s *Stage) storeProxy(r *topology.Isolated) *tcpproxy.Proxy {
	if s.Store == oracle.Redis {
		return r.Redis
	}
	return r.MySQL
}

// mentionsItem matches a message about the item.
func (s *Stage) mentionsItem(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, strconv.AppendInt(nil, s.Item, 10))
}

// completes returns a function that matches the message that completes a sale of the item. That is the one of decides,
// unless the strategy takes reservations: its COMMIT only holds the units, and if the client has gone before they are
// confirmed, they are given back. The confirmation names no item, but no other cell of a round confirms anything.
func (s *Stage) completes() func(tcpproxy.Message) bool {
	if len(s.Strategy.Reservations) > 0 {
		return func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte("SET state = 'confirmed'")) }
	}
	return s.decides()
}

// decides returns a function that matches the message by which a sale of the item is made durable: the COMMIT of a
// transaction that has changed its stock, or the change itself if it is in none.
func (s *Stage) decides() func(tcpproxy.Message) bool {
	changed := map[int]bool{} // by the number of a connection with a transaction: whether that has changed the stock
	return func(m tcpproxy.Message) bool {
		did, inTx := changed[m.Conn]
		switch {
		case bytes.HasSuffix(m.Data, []byte("START TRANSACTION")):
			changed[m.Conn] = false
		case bytes.HasSuffix(m.Data, []byte("COMMIT")):
			delete(changed, m.Conn)
			return did || s.writesStock(m) // a strategy may send the whole transaction in one message
		case bytes.HasSuffix(m.Data, []byte("ROLLBACK")):
			delete(changed, m.Conn)
		case s.writesStock(m):
			if !inTx {
				return true
			}
			changed[m.Conn] = true
		}
		return false
	}
}
