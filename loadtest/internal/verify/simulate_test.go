package verify_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// shop describes a correct service, and what it is asked for.
type shop struct {
	seed      uint64
	users     int
	requests  int
	goods     int64
	stock     int64   // of each item
	counts    int64   // a request asks for 1 to counts units
	unknown   float64 // share of requests whose reply is lost; half of them take effect
	late      bool    // requests with a lost reply may take effect long after their client gave up
	restocks  float64 // share of requests that put units back instead
	replay    float64 // share of requests with a lost reply that are tried again, at a service that remembers
	exclusive bool
	omitting  float64 // share of sales that do not report what remains
	lines     int     // a request is an order of 1 to lines items; 0: a deduction
	retries   float64 // share of requests that are sent again, at a service that remembers and keeps a ledger
}

// simulation is a correct service in virtual time: every request takes effect at one moment between being sent and
// being answered.
type simulation struct {
	shop
	timetable
	random   *rand.Rand
	history  *history.History
	stocks   map[int64]int64       // by item
	left     map[int64]int64       // by item: when its last critical section ended
	answered map[string]history.Op // by name: its latest answer
	inFlight map[string]bool       // names sent twice at the same time
	sent     int
}

// timetable is what will happen in virtual time.
type timetable struct{ events []event }

type event struct {
	at int64
	do func(at int64)
}

// simulate returns a history that must never be judged wrong.
func simulate(s shop) *history.History {
	h := &history.History{
		Run: history.Run{
			Cell: history.Cell{
				Subject: history.Subject{
					Strategy: "simulated",
					Store:    "mysql",
					Replicas: 2,
					Workload: history.Workload{Name: "test", Users: s.users},
				},
				Round: 1,
			},
			Planned:        s.requests,
			Claim:          verify.ClaimCorrect,
			Exclusive:      s.exclusive,
			OmitsRemaining: s.omitting > 0,
			Witness:        "oracle",
			Retries:        s.retries > 0,
			Keys:           s.retries > 0,
			Ledger:         s.retries > 0,
			Set:            map[int64]int64{},
			Initial:        map[int64]int64{},
		},
		End: &history.End{StartedNS: 1000, Final: map[int64]int64{}, LedgerRead: s.retries > 0},
	}
	sim := &simulation{
		shop:     s,
		random:   rand.New(rand.NewPCG(s.seed, 1)),
		history:  h,
		stocks:   map[int64]int64{},
		left:     map[int64]int64{},
		answered: map[string]history.Op{},
		inFlight: map[string]bool{},
	}
	for id := int64(1); id <= s.goods; id++ {
		sim.stocks[id], h.Run.Set[id], h.Run.Initial[id] = s.stock, s.stock, s.stock
	}
	for client := range s.users {
		sim.ask(client, 1000+sim.random.Int64N(1000), nil)
	}
	h.End.EndedNS = sim.play()
	maps.Copy(h.End.Final, sim.stocks)
	return h
}

// play runs all events by time, and returns when the last one happened.
func (s *timetable) play() (now int64) {
	for len(s.events) > 0 {
		next := 0
		for i := range s.events {
			if s.events[i].at < s.events[next].at {
				next = i
			}
		}
		e := s.events[next]
		s.events = slices.Delete(s.events, next, next+1)
		now = max(now, e.at)
		e.do(e.at)
	}
	return now
}

func (s *timetable) schedule(at int64, do func(at int64)) {
	s.events = append(s.events, event{at: at, do: do})
}

// ask sends a client's next request, or a request again.
func (s *simulation) ask(client int, at int64, again *history.Op) {
	if again == nil && s.sent == s.requests {
		return
	}
	var op history.Op
	if again != nil {
		op = history.Op{
			Kind: again.Kind, Name: again.Name, GoodsID: again.GoodsID, Count: again.Count, Lines: unanswered(again.Lines),
			Again: again.Again, How: again.How, Replica: s.replica(),
		}
	} else {
		s.sent++
		op = s.newRequest()
	}
	op.Client, op.SentNS, op.Status, op.Outcome = client, at, 200, history.Sold
	if again == nil && s.retries > 0 && s.random.Float64() < s.retries/3 {
		s.inFlight[op.Name] = true
		s.sendAgain(op, at+s.random.Int64N(1000), history.InFlight)
	}
	op.RequestID = fmt.Sprintf("%s-at-%d", op.Name, at)
	lost := s.random.Float64() < s.unknown
	takesEffect := !lost || s.random.IntN(2) == 0
	if lost {
		s.giveUp(op)
	}
	if !takesEffect {
		return
	}
	delay := 10 + s.random.Int64N(400_000)
	if lost && s.late {
		delay += s.random.Int64N(20_000_000)
	}
	s.schedule(at+delay, func(now int64) { s.takeEffect(op, now, lost) })
}

// newRequest asks for one item or, in an order, for several.
func (s *simulation) newRequest() history.Op {
	op := history.Op{
		Kind:    history.Deduct,
		Name:    fmt.Sprint("deduction-", s.sent),
		GoodsID: 1 + s.random.Int64N(s.goods),
		Count:   1 + s.random.Int64N(s.counts),
		Replica: s.replica(),
	}
	if s.lines > 0 {
		op.Kind, op.GoodsID, op.Count = history.Order, 0, 0
		for _, i := range s.random.Perm(int(s.goods))[:1+s.random.IntN(s.lines)] {
			op.Lines = append(op.Lines, history.Line{GoodsID: int64(1 + i), Count: 1 + s.random.Int64N(s.counts)})
		}
	}
	if s.random.Float64() < s.restocks {
		op.Kind = history.Restock
	}
	return op
}

func (s *simulation) replica() string { return fmt.Sprint("replica-", 1+s.random.IntN(2)) }

// unanswered returns the lines as they are sent.
func unanswered(lines []history.Line) []history.Line {
	lines = slices.Clone(lines)
	for i, line := range lines {
		lines[i] = history.Line{GoodsID: line.GoodsID, Count: line.Count}
	}
	return lines
}

// sendAgain lets a client send a request again.
func (s *simulation) sendAgain(op history.Op, at int64, how string) {
	op.Again, op.How = true, how
	s.schedule(at, func(now int64) { s.ask(op.Client, now, &op) })
}

// goOn lets a client, whose request has ended, send the same or the next one.
func (s *simulation) goOn(op history.Op, now int64) {
	if op.Again && op.How != history.AtOnce {
		return // its client has gone on meanwhile
	}
	if s.retries > 0 && !op.Again && s.random.Float64() < s.retries {
		if s.random.IntN(2) == 0 {
			s.sendAgain(op, now+10, history.AtOnce)
			return
		}
		s.sendAgain(op, now+s.random.Int64N(5_000_000), history.Later)
	}
	s.ask(op.Client, now+10, nil)
}

// giveUp lets the client of a request time out, and try it again or go on with the next one.
func (s *simulation) giveUp(op history.Op) {
	op.ReceivedNS, op.Status, op.Outcome, op.Replica = op.SentNS+1_000_000, 0, history.Unknown, ""
	s.schedule(op.ReceivedNS, func(now int64) {
		s.history.Ops = append(s.history.Ops, op)
		if op.Kind == history.Deduct && s.random.Float64() < s.replay {
			s.ask(op.Client, now+10, &op)
			return
		}
		s.goOn(op, now)
	})
}

// takeEffect decides a request, and answers it unless its reply is lost.
func (s *simulation) takeEffect(op history.Op, now int64, lost bool) {
	now = s.enter(op, now)
	first, known := s.answered[op.Name]
	stock := s.stocks[op.GoodsID]
	switch {
	case known && s.retries > 0:
		op.Outcome, op.Status, op.Remaining, op.Lines = first.Outcome, first.Status, first.Remaining, first.Lines
		op.OmitsRemaining, op.Replayed = first.OmitsRemaining, true
	case s.inFlight[op.Name] && s.random.IntN(2) == 0:
		op.Outcome, op.Status, op.Error = history.Busy, 409, "/problems/in-progress"
		delete(s.inFlight, op.Name) // the other one is in progress
	case op.Kind == history.Order:
		s.order(&op, now)
	case op.Kind == history.Restock:
		s.stocks[op.GoodsID] += op.Count
	case known && s.replay > 0:
		op.Remaining, op.OmitsRemaining = first.Remaining, first.OmitsRemaining
		op.EnteredNS, op.LeftNS = first.EnteredNS, first.LeftNS
		op.Outcome, op.Status = first.Outcome, first.Status
	case stock < op.Count:
		op.Outcome, op.Status, op.Remaining = history.SoldOut, 409, stock
	default:
		op.Remaining = stock - op.Count
		s.stocks[op.GoodsID] = op.Remaining
		op.EnteredNS, op.LeftNS = now-3, now+3
		s.left[op.GoodsID] = now + 3
		if s.omitting > 0 && s.random.Float64() < s.omitting {
			op.Remaining, op.OmitsRemaining = 0, true
		}
	}
	if op.Outcome != history.Busy {
		s.answered[op.Name] = op
		s.record(op)
	}
	if lost {
		return
	}
	op.ReceivedNS = now + 10 + s.random.Int64N(200_000)
	s.schedule(op.ReceivedNS, func(now int64) {
		s.history.Ops = append(s.history.Ops, op)
		s.goOn(op, now)
	})
}

// enter returns when a request can enter its critical section.
func (s *simulation) enter(op history.Op, now int64) int64 {
	if op.Kind != history.Order {
		return max(now, s.left[op.GoodsID]+10)
	}
	for _, line := range op.Lines {
		now = max(now, s.left[line.GoodsID]+10)
	}
	return now
}

// order deducts every line, or none if one of them is short.
func (s *simulation) order(op *history.Op, now int64) {
	op.Lines = slices.Clone(op.Lines)
	for i := range op.Lines {
		line := &op.Lines[i]
		if left := s.stocks[line.GoodsID]; left < line.Count {
			op.Outcome, op.Status, line.Short, line.Remaining = history.SoldOut, 409, true, left
			return
		}
	}
	op.EnteredNS, op.LeftNS = now-3, now+3
	for i := range op.Lines {
		line := &op.Lines[i]
		s.stocks[line.GoodsID] -= line.Count
		s.left[line.GoodsID] = now + 3
		line.Remaining = s.stocks[line.GoodsID]
	}
}

// record writes a request that is carried out into the ledger.
func (s *simulation) record(op history.Op) {
	if s.retries == 0 || op.Replayed || op.Outcome != history.Sold {
		return
	}
	if op.Kind == history.Deduct {
		op.Lines = []history.Line{{GoodsID: op.GoodsID, Count: op.Count, Remaining: op.Remaining}}
	}
	for _, line := range op.Lines {
		row := history.Entry{Key: op.Name, GoodsID: line.GoodsID, Count: line.Count, Remaining: line.Remaining}
		s.history.Ledger = append(s.history.Ledger, row)
	}
}

// plenty and flashSale are small versions of the two workloads of the lab.
func plenty(seed uint64) shop {
	return shop{seed: seed, users: 20, requests: 400, goods: 1, stock: 1000, counts: 1, exclusive: true}
}

func flashSale(seed uint64) shop {
	return shop{seed: seed, users: 20, requests: 400, goods: 1, stock: 150, counts: 1, exclusive: true}
}
