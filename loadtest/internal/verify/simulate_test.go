package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"stock/loadtest/internal/history"
)

// shop says how a correct service is to be simulated.
type shop struct {
	seed      uint64
	users     int
	requests  int
	goods     int64
	stock     int64   // of each goods
	counts    int64   // 1 … counts units a request
	unknown   float64 // share of requests whose reply is lost; half of them have taken effect
	late      bool    // lost requests may take effect long after their client gave up
	restocks  float64 // share of requests that put units back instead
	replay    float64 // share of lost requests that are tried again, at a service that remembers
	exclusive bool
	untold    float64 // share of sales that do not tell what remains
}

// simulate plays a correct service in virtual time: every request takes effect in one moment between being sent and
// being answered. What comes out must never be judged wrong.
func simulate(s shop) *history.History {
	random := rand.New(rand.NewPCG(s.seed, 1))
	h := &history.History{
		Run: history.Run{Cell: history.Cell{Strategy: "simulated", Store: "mysql", Replicas: 2, Round: 1,
			Workload: history.Workload{Name: "test", Users: s.users}}, Planned: s.requests, Promise: "correct", Exclusive: s.exclusive, Untold: s.untold > 0, Witness: "oracle", Initial: map[int64]int64{}},
		End: &history.End{Final: map[int64]int64{}},
	}
	stock, left := map[int64]int64{}, map[int64]int64{}
	for g := int64(1); g <= s.goods; g++ {
		stock[g], h.Run.Initial[g] = s.stock, s.stock
	}

	type event struct {
		at int64
		do func(at int64)
	}
	var events []event
	schedule := func(at int64, do func(at int64)) { events = append(events, event{at, do}) }
	answered := map[string]history.Op{}

	sent := 0
	var ask func(client int, at int64, again *history.Op)
	ask = func(client int, at int64, again *history.Op) {
		if again == nil && sent == s.requests {
			return
		}
		op := history.Op{Kind: history.Deduct, Client: client, SentNS: at, Status: 200, Outcome: history.Sold,
			GoodsID: 1 + random.Int64N(s.goods), Count: 1 + random.Int64N(s.counts), Replica: fmt.Sprint("replica-", 1+random.IntN(2))}
		if again != nil {
			op.Order, op.GoodsID, op.Count = again.Order, again.GoodsID, again.Count
		} else {
			sent++
			op.Order = fmt.Sprint("order-", sent)
			if random.Float64() < s.restocks {
				op.Kind = history.Restock
			}
		}
		op.RequestID = fmt.Sprintf("%s-at-%d", op.Order, at)
		lost := random.Float64() < s.unknown
		happens := !lost || random.IntN(2) == 0
		if lost {
			gaveUp := op
			gaveUp.ReceivedNS, gaveUp.Status, gaveUp.Outcome, gaveUp.Replica = at+1_000_000, 0, history.Unknown, ""
			schedule(gaveUp.ReceivedNS, func(now int64) {
				h.Ops = append(h.Ops, gaveUp)
				if gaveUp.Kind == history.Deduct && random.Float64() < s.replay {
					ask(client, now+10, &gaveUp)
					return
				}
				ask(client, now+10, nil)
			})
		}
		if !happens {
			return
		}
		delay := 10 + random.Int64N(400_000)
		if lost && s.late {
			delay += random.Int64N(20_000_000)
		}
		schedule(at+delay, func(now int64) {
			now = max(now, left[op.GoodsID]+10)
			first, known := answered[op.Order]
			switch {
			case op.Kind == history.Restock:
				stock[op.GoodsID] += op.Count
			case known && s.replay > 0:
				op.Remaining, op.Untold, op.EnteredNS, op.LeftNS = first.Remaining, first.Untold, first.EnteredNS, first.LeftNS
				op.Outcome, op.Status = first.Outcome, first.Status
			case stock[op.GoodsID] < op.Count:
				op.Outcome, op.Status, op.Remaining = history.SoldOut, 409, stock[op.GoodsID]
			default:
				stock[op.GoodsID] -= op.Count
				op.Remaining = stock[op.GoodsID]
				op.EnteredNS, op.LeftNS = now-3, now+3
				left[op.GoodsID] = now + 3
				if s.untold > 0 && random.Float64() < s.untold {
					op.Remaining, op.Untold = 0, true
				}
			}
			answered[op.Order] = op
			if lost {
				return
			}
			op.ReceivedNS = now + 10 + random.Int64N(200_000)
			schedule(op.ReceivedNS, func(now int64) {
				h.Ops = append(h.Ops, op)
				ask(client, now+10, nil)
			})
		})
	}
	for client := range s.users {
		ask(client, 1000+random.Int64N(1000), nil)
	}
	var now int64
	for len(events) > 0 {
		next := 0
		for i := range events {
			if events[i].at < events[next].at {
				next = i
			}
		}
		e := events[next]
		events = slices.Delete(events, next, next+1)
		now = max(now, e.at)
		e.do(e.at)
	}
	h.End.StartedNS, h.End.EndedNS = 1000, now
	for g, units := range stock {
		h.End.Final[g] = units
	}
	return h
}

// plenty and flashSale are the two workloads of the lab, small.
func plenty(seed uint64) shop {
	return shop{seed: seed, users: 20, requests: 400, goods: 1, stock: 1000, counts: 1, exclusive: true}
}

func flashSale(seed uint64) shop {
	return shop{seed: seed, users: 20, requests: 400, goods: 1, stock: 150, counts: 1, exclusive: true}
}
