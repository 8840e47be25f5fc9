package fault

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
)

// clientRetries is the story of a client whose answer is lost, and that sends again.
var clientRetries = Scenario{
	Name:    "client-retries",
	Title:   "The answer is lost on its way to the client, which sends its request again to the other replica.",
	Applies: everyStrategy,
	Claim:   retryClaim,
	Play: func(s *Stage) {
		front := s.proxyTo(s.Victim.Address())
		front.Cut(1, tcpproxy.BeforeReply)
		first := s.send(order{client: "A", at: s.Victim, through: "http://" + front.Addr()})
		stock := s.stock(s.Store)
		s.requiref(first.Outcome == history.Unknown && !front.Armed() && stock == units-1,
			"client A was told %q, and %s has %d units", first.Outcome, s.Store, stock)
		s.Provef("the proxy in front of the victim cut the connection when the answer came; %s has %d units", s.Store, stock)
		s.send(s.again())
	},
}

// retryClaim is what the catalogue claims about a request that is sent again.
func retryClaim(s scenario.Strategy) Claim { return catalogued(s.Claim.ClientRetry) }

// again is A's request, which is sent again to the survivor.
func (s *Stage) again() order {
	return order{client: "A, again,", name: "A", at: s.Survivor, again: s.Strategy.Idempotent}
}

// retryScenarios are stories of a client that does not know what became of its request, and sends it again, and of
// sales whose last step fails.
var retryScenarios = slices.Concat(cutAround(commitUnknown), []Scenario{
	scripted("client-times-out",
		"The client gives up while its sale is on its way to the store, and sends its request again.",
		script("update-sent-again", "deducts-again", report.Unsafe),
		script("ledger", "repeats-answer", report.Safe)),
	{
		Name:    "proxy-resends/post",
		Title:   "A replica's answer does not reach nginx, which never sends a POST again unless it is told to.",
		Applies: everyStrategy,
		Claim:   always("sent-once", report.Safe),
		On:      Setting{Nginx: true, Proxies: true},
		Play: func(s *Stage) {
			op, sent := s.loseAnswerToNginx()
			switch {
			case sent > 1:
				s.Failf("nginx sent the request %d times", sent)
			case op.Outcome != history.Unknown:
				s.failf("nginx got no answer, and client A was told %q", op.Outcome)
			default:
				s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx did not send the request again")
			}
		},
	},
	{
		Name:    "proxy-resends/non-idempotent",
		Title:   "The same, and nginx is told to send a POST again (proxy_next_upstream non_idempotent).",
		Applies: everyStrategy,
		Claim:   retryClaim,
		On:      Setting{Nginx: true, Proxies: true, Resend: true},
		Play: func(s *Stage) {
			op, sent := s.loseAnswerToNginx()
			s.requiref(op.Outcome == history.Sold && sent == 2,
				"nginx sent the request %d times, and A was told %q", sent, op.Outcome)
			s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx sent the request to the %s too",
				op.Replica)
		},
	},
}, cutAround(batchUnknown), cutAround(confirmationUnknown), cutAround(reservationUnknown), []Scenario{
	{
		Name:    "second-store/unknown",
		Title:   "The connection to MySQL is cut after it has deducted what was sold in Redis.",
		Applies: writesThrough,
		Claim:   keepsInStep,
		Play:    func(s *Stage) { s.cutSale(s.decides(), "after") },
	},
	{
		Name:    "second-store/refuses",
		Title:   "MySQL refuses to deduct what was sold in Redis, because another transaction has locked the row.",
		Applies: writesThrough,
		Claim:   keepsInStep,
		Play: func(s *Stage) {
			s.whileLocked(s.Item, func() {
				if a := s.send(to(s.Victim, "A", 1)); a.Outcome == history.Busy {
					s.Provef("another transaction had locked the row, and A was refused: %s", a.Error)
				}
			})
			s.buyNow("B", 2)
		},
	},
	{
		Name: "entry-delivered-twice",
		Title: "A replica is killed when MySQL has committed a sale from the stream, before its entry is deleted " +
			"(SIGKILL). The entry is delivered again.",
		Applies: writesBehind,
		Claim:   always("finds in MySQL that the sale was written", report.Safe),
		Play: func(s *Stage) {
			removal := s.catch(s.Victim.Redis, s.removesEntry)
			s.mustBuy(to(s.Victim, "A", 1))
			removal.arrive()
			s.killVictim()
			removal.Cut(tcpproxy.BeforeRequest)
			if stock := s.stock(oracle.MySQL); stock == units-1 && s.entries() == 1 {
				s.Provef("MySQL has %d units, and the entry of A's sale is still in the stream", stock)
			}
			s.buyNow("B", 2)
			s.eventually("the stream is empty", func() bool { return s.entries() == 0 })
		},
	},
	// Of a stock that is set while something of the stock before is not done, nobody asks what became of that: the judge
	// sees the new stock only.
	{
		Name:    "stock-is-set/entry",
		Title:   "The stock is set while a sale of the stock before is on its way from the stream to MySQL.",
		Applies: writesBehind,
		Claim:   always("does not deduct sales of an older stock", report.Safe),
		Play: func(s *Stage) {
			record := s.catch(s.Victim.MySQL, func(m tcpproxy.Message) bool {
				return s.mentionsItem(m) && bytes.Contains(m.Data, []byte("FOR UPDATE"))
			})
			s.mustBuy(order{client: "Z", at: s.Victim, before: true})
			record.arrive()
			s.setAnew()
			s.Provef("the stock was set while the proxy held the message of %d bytes that begins to write Z's sale",
				record.Bytes())
			record.Release()
			s.buyNow("A", 2)
			s.eventually("the stream is empty", func() bool { return s.entries() == 0 })
		},
	},
	{
		Name:    "stock-is-set/hold",
		Title:   "The stock is set while units of the stock before are held, which are given back then.",
		Applies: takesReservations,
		Claim:   always("does not give units back to a later stock", report.Safe),
		Play: func(s *Stage) {
			confirmation := s.catch(s.Victim.MySQL, confirms)
			z := s.start(order{client: "Z", at: s.Victim, before: true}).caught(confirmation)
			s.setAnew()
			confirmation.Cut(tcpproxy.BeforeRequest)
			if op := z.wait(); op.Outcome == history.Busy {
				s.Provef("Z's unit was held when the stock was set, and was not confirmed: %s", op.Error)
			}
			s.buyNow("A", 2)
		},
	},
	{
		Name:    "stock-is-set/limit",
		Title:   "The stock is set after a buyer has bought as much as the limit allows, and the buyer comes again.",
		Applies: applies(func(s scenario.Strategy) bool { return s.Claim.BuyerLimit != "" }, "it takes no limit per buyer"),
		Claim:   always("a limit counts what was bought of the present stock", report.Safe),
		Play: func(s *Stage) {
			z := order{client: "Z", at: s.Victim, count: 2, limit: 2, before: true}
			s.mustBuy(z)
			s.setAnew()
			z.at, z.before = s.Survivor, false
			if op := s.send(z); op.Outcome == history.Sold || op.Outcome == history.BuyerLimit {
				s.Provef("the buyer had %d units of the stock before, which is the limit", z.count)
			}
		},
	},
})

// cuts are the points at which a connection is cut: before a message has reached its server, or after, so that the
// reply is lost.
var cuts = map[string]tcpproxy.CutPoint{"before": tcpproxy.BeforeRequest, "after": tcpproxy.BeforeReply}

// cutAround returns both variants of a story.
func cutAround(story func(variant string) Scenario) []Scenario {
	return []Scenario{story("before"), story("after")}
}

// commitUnknown is the story of a connection to MySQL that breaks around COMMIT.
func commitUnknown(variant string) Scenario {
	left := int64(units) // what MySQL must have then
	if variant == "after" {
		left--
	}
	return Scenario{
		Name: "commit-unknown/" + variant,
		Title: "The connection to MySQL is cut " + variant +
			" MySQL has committed the sale, and the client sends its request again.",
		Applies: applies(func(s scenario.Strategy) bool { return !s.Baseline() && s.Stores[0] != oracle.Redis },
			"it commits nothing in MySQL"),
		Claim: func(s scenario.Strategy) Claim {
			switch {
			case s.Claim.HolderCrash == "blocks-until-lease-ends" && s.Claim.LateWrite == "loses-updates":
				// A request whose outcome is unknown keeps its lock: without a fence, its write might come late.
				return catalogued("blocks-until-lease-ends")
			case variant == "before":
				return claim("sells-once", report.Safe)
			}
			return retryClaim(s)
		},
		On: Setting{Args: []string{"--lease=" + lostLease.String()}},
		Play: func(s *Stage) {
			commit := s.catch(s.storeProxy(s.Victim.Proxies), s.decides())
			first := s.start(to(s.Victim, "A", 1)).caught(commit)
			commit.Cut(cuts[variant])
			told, stock := first.wait().Outcome, s.stock(s.Store)
			s.requiref(told == history.Unknown && stock == left, "client A was told %q, and MySQL has %d units", told, stock)
			s.Provef("the proxy cut the connection %s the sale's %d bytes reached MySQL, which now has %d units",
				variant, commit.Bytes(), left)
			s.buy(s.again(), time.Now())
		},
	}
}

// loseAnswerToNginx sends a request of client A through nginx, and loses the first answer of a replica on its way to
// nginx. It returns how A's request ended, and how often nginx sent it.
func (s *Stage) loseAnswerToNginx() (history.Op, int64) {
	var sent atomic.Int64
	count := func(m tcpproxy.Message) bool {
		if s.isRequest(m) {
			sent.Add(1)
		}
		return false
	}
	first := func(m tcpproxy.Message) bool { return s.isRequest(m) && sent.Load() == 1 }
	s.catch(s.nginx.victim, count)
	s.catch(s.nginx.survivor, count)
	victim, survivor := s.catch(s.nginx.victim, first), s.catch(s.nginx.survivor, first)
	p := s.start(order{client: "A", through: s.nginx.URL})
	select {
	case <-victim.Arrived():
		victim.Cut(tcpproxy.BeforeReply)
	case <-survivor.Arrived():
		survivor.Cut(tcpproxy.BeforeReply)
	case <-p.done:
		p.wait()
		s.failf("client A was answered before nginx had sent its request")
	}
	op := p.wait()
	if sent.Load() > 1 {
		// To the judge, nginx is a client that was not answered and sent the request again.
		first := op
		first.Outcome, first.Replica, first.Error = history.Unknown, "", "the connection was cut"
		first.Remaining, first.Token, first.EnteredNS, first.LeftNS, first.Replayed = 0, 0, 0, 0, false
		s.record("nginx", first)
	}
	return op, sent.Load()
}

// writesThrough applies to strategies that deduct in MySQL after Redis, before the buyer is answered.
var writesThrough = applies(func(s scenario.Strategy) bool { return s.WriteThrough },
	"it does not deduct in two stores")

var keepsInStep = always("gives units back to Redis if MySQL refuses them, and not if it may have deducted them",
	report.Safe)

// cutSale has A buy, cuts the connection to MySQL before or after a message of the sale arrives, and has B buy. A's
// request has no key, with which reserve would hold nothing, and so is not in the ledger.
func (s *Stage) cutSale(match func(tcpproxy.Message) bool, variant string) {
	message := s.catch(s.Victim.MySQL, match)
	s.run.Ledger = false
	a := s.start(order{client: "A", at: s.Victim, count: 1, keyless: true}).caught(message)
	message.Cut(cuts[variant])
	a.wait()
	s.Provef("the proxy cut the connection %s A's last message (%d bytes) arrived; MySQL has %d units",
		variant, message.Bytes(), s.stock(oracle.MySQL))
	s.buyNow("B", 2)
}

// takesReservations applies to strategies that take reservations.
var takesReservations = applies(func(s scenario.Strategy) bool { return len(s.Reservations) > 0 },
	"it takes no reservations")

// confirmationUnknown is the story of a sale of which MySQL has held the units, and that loses its connection around
// the confirmation.
func confirmationUnknown(variant string) Scenario {
	return Scenario{
		Name:    "confirmation-unknown/" + variant,
		Title:   "The connection to MySQL is cut " + variant + " MySQL has confirmed the reservation of a sale.",
		Applies: takesReservations,
		Claim:   always("finds out whether the reservation is confirmed, and cancels it if not", report.Safe),
		Play:    func(s *Stage) { s.cutSale(confirms, variant) },
	}
}

// reservationUnknown is the same for a client that holds a unit and then confirms it.
func reservationUnknown(variant string) Scenario {
	return Scenario{
		Name: "reservation-unknown/" + variant,
		Title: "The connection to MySQL is cut " + variant +
			" MySQL has confirmed a reservation, and the client confirms it again.",
		Applies: takesReservations,
		Claim:   always("says that the outcome is unknown, and confirms once", report.Safe),
		Play: func(s *Stage) {
			s.run.CallsVersion = history.CallsVersion
			held := s.reserve("A", roundTime)
			confirmation := s.catch(s.Victim.MySQL, confirms)
			confirmed := s.meanwhile(func() { s.call(s.Victim, traffic.About(held, history.Confirm, false)) })
			confirmation.arrive()
			confirmation.Cut(cuts[variant])
			confirmed()
			inspect := s.call(s.Survivor, traffic.About(held, history.Inspect, false))
			s.call(s.Survivor, traffic.About(held, history.Confirm, true))
			s.Provef("the proxy cut the connection %s the confirmation (%d bytes) arrived; then the reservation is %s",
				variant, confirmation.Bytes(), inspect.State)
		},
	}
}

const (
	batchSize = 3 // requests that are to share a commit
	// gathering is how long requests have to arrive in the queue of their replica, which nobody can see from outside. That
	// they did is proved by what became of them.
	gathering = 300 * time.Millisecond
)

// batchUnknown is the story of a connection that breaks around the commit of several requests. They are in one batch
// because they have waited for the one before.
func batchUnknown(variant string) Scenario {
	return Scenario{
		Name:    "batch-unknown/" + variant,
		Title:   "The connection to the store is cut " + variant + " the store has committed several requests together.",
		Applies: only("batch", "escrow", "redis-script"),
		Claim:   always("tells each of them that the outcome is unknown", report.Safe),
		Play: func(s *Stage) {
			proxy := s.storeProxy(s.Victim.Proxies)
			before := s.catch(proxy, s.decides())
			a := s.start(to(s.Victim, "A", 1)).caught(before)
			var members []*pending
			for i := range batchSize {
				members = append(members, s.start(to(s.Victim, fmt.Sprintf("B%d", i+1), 1)))
			}
			time.Sleep(gathering)
			commit := s.catch(proxy, s.commitsBatch())
			before.Release()
			a.wait()
			commit.arrive()
			commit.Cut(cuts[variant])
			unknown := 0
			for _, b := range members {
				if b.wait().Outcome == history.Unknown {
					unknown++
				}
			}
			if unknown > 1 {
				s.Provef("%d requests have an unknown outcome, because one connection was cut at a message of %d bytes",
					unknown, commit.Bytes())
			}
			s.buyNow("C", 1)
		},
	}
}

// commitsBatch matches the message that makes a batch durable. escrow first tries the row of its replica, which has one
// unit at most, and so too few. That transaction is one message; the one that follows has a message for its COMMIT.
func (s *Stage) commitsBatch() func(tcpproxy.Message) bool {
	decides := s.decides()
	if s.Store != oracle.Slots {
		return decides
	}
	return func(m tcpproxy.Message) bool { return decides(m) && bytes.HasSuffix(m.Data, []byte("\x03COMMIT")) }
}

// writesBehind applies to strategies that update MySQL after the sale.
var writesBehind = applies(func(s scenario.Strategy) bool { return s.WriteBehind },
	"it has no sales on their way to MySQL")
