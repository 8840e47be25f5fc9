package explore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stock/internal/contract"
	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// judge reads what the schedule left, and has it judged as a load is.
func (x *session) judge(ctx context.Context, s *schedule, o trace.Execution) (trace.Execution, error) {
	told, err := s.told()
	if err != nil {
		return o, err
	}
	script, isScript := x.lane.subject.(*scripted)
	if isScript && script.Check {
		o.Kind, err = script.check(ctx, s.items, told)
		return o, err
	}
	h, err := x.left(ctx, s.items, told)
	if err != nil {
		return o, err
	}
	h.Run.Exclusive = h.Run.Exclusive && len(s.struck) == 0
	h.End.StartedNS, h.End.EndedNS = s.began, monotonic.Now()
	o.Kind, o.Evidence = judgeAnswers(h, told)
	if o.Kind == trace.Right && !isScript && len(s.struck) == 0 && !slices.ContainsFunc(told, answers.served) {
		o.Kind, o.Evidence = trace.NotServed, []string{"no request was served, and no fault has struck"}
	}
	if o.Kind == trace.Leaked && slices.Contains(s.struck, SentAgain) && !x.keyed() {
		o.Kind = trace.SoldTwice // to the judge, both requests are one
	}
	for i, item := range s.items {
		left := fmt.Sprintf("the store has %d of %d units", h.End.Final[item], x.workload.stock[i])
		s.add(trace.Step{Kind: trace.Answers, Text: left})
	}
	o.Steps = s.trace()
	return o, nil
}

// told returns what the clients were told who have asked for something.
func (s *schedule) told() (all []answers, err error) {
	for _, a := range s.actors {
		if !a.started {
			continue
		}
		if a.err != nil {
			return nil, a.err
		}
		if a.lost {
			a.answers.forget()
		}
		a.answers.delay(a.executed)
		all = append(all, a.answers)
	}
	return all, nil
}

// delay moves the beginning of each request to its first step that is executed, or to its critical section if that
// begins earlier. All requests are sent at the beginning, but until then a request is like one that is sent later.
func (a *answers) delay(executed []int64) {
	begins := func(sent, received int64) int64 {
		began := slices.IndexFunc(executed, func(at int64) bool { return at > sent && at < received })
		if began < 0 {
			return sent
		}
		return executed[began]
	}
	for i := range a.ops {
		op := &a.ops[i]
		sent := op.SentNS
		op.SentNS = begins(sent, op.ReceivedNS)
		if op.EnteredNS > sent {
			op.SentNS = min(op.SentNS, op.EnteredNS)
		}
	}
	for i := range a.calls {
		a.calls[i].Sent = begins(a.calls[i].Sent, a.calls[i].Received)
	}
}

// forget makes the last answer unknown: a client whose replica has died cannot know more.
func (a *answers) forget() {
	if n := len(a.ops); n > 0 {
		op := &a.ops[n-1]
		op.Outcome, op.Sold = history.Unknown, 0
	}
	if n := len(a.calls); n > 0 {
		a.calls[n-1].Answer = contract.Unknown
	}
}

// served reports whether a client knows what became of a request, and the service was not busy.
func (a answers) served() bool {
	return slices.ContainsFunc(a.ops, func(op history.Op) bool {
		return op.Outcome != history.Busy && op.Outcome != history.Unknown
	}) || slices.ContainsFunc(a.calls, func(c contract.Call) bool {
		return c.Answer != contract.Busy && c.Answer != contract.Unknown
	})
}

// mayHold reports whether a deduction may have held units for a while that it has not sold.
func (a answers) mayHold() bool {
	return slices.ContainsFunc(a.ops, func(op history.Op) bool {
		return op.Sells() && (op.Outcome == history.Busy || op.Outcome == history.Unknown)
	})
}

// left reads what a schedule has left in the stores. The answers are completed by what the service says afterwards.
func (x *session) left(ctx context.Context, items []int64, told []answers) (*history.History, error) {
	durable := x.strategy.Durable(x.store)
	claim := x.strategy.ClaimFor(2, false)
	h := &history.History{Run: history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: x.strategy.Name, Store: x.store, Replicas: 2, Workload: history.Workload{Name: x.workload.name},
			},
			Round: 1,
		},
		Scenario: "explore", Claim: claim, Witness: history.WitnessOracle, Exclusive: x.strategy.Claim.Exclusive &&
			claim == verify.ClaimCorrect,
		Fenced: x.strategy.Fenced(), OmitsRemaining: x.strategy.OmitsRemaining(), Keys: x.keyed(),
		Set: x.stockOf(items), Initial: x.stockOf(items),
	}, End: &history.End{}}
	var err error
	if takesHolds(x.strategy, x.store) && slices.ContainsFunc(told, answers.mayHold) {
		h.Run.Reserves = true
		if err = x.newRacing(items).sweep(ctx); err != nil {
			return nil, err
		}
	}
	if h.End.Final, err = x.settled(ctx, durable, items); err != nil {
		return nil, err
	}
	if x.strategy.WriteThrough {
		if h.End.Seller, err = x.lane.oracle.Stock(ctx, x.store, items); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// settled reads the stock when what is written behind has reached MySQL: sales, or units that were put back.
func (x *session) settled(ctx context.Context, durable string, items []int64) (map[int64]int64, error) {
	if x.lane.subject != nil {
		return x.lane.subject.running(x.lane).ReadStock(ctx, items)
	}
	if x.strategy.WriteBehind || x.strategy.WriteThrough {
		deadline := time.Now().Add(writeBehindTime)
		for _, item := range items {
			for x.lane.entries(ctx, item) > 0 && time.Now().Before(deadline) {
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
	return x.lane.oracle.Stock(ctx, durable, items)
}

// writeBehindTime is how long a strategy that writes behind may take.
const writeBehindTime = 10 * time.Second

// judgeAnswers judges what clients were told, given what is left.
func judgeAnswers(h *history.History, told []answers) (damage string, evidence []string) {
	v := verify.Judge(record(h, told))
	if !h.Run.Exclusive {
		v.Overlaps = 0 // nobody claims that there are none
	}
	damage = kind(v)
	for item, units := range h.End.Seller {
		if damage == trace.OtherWrong && units > h.End.Final[item] {
			damage = trace.SellsMore
		} else if damage == trace.OtherWrong && units < h.End.Final[item] {
			damage = trace.SellsLess
		}
	}
	return damage, v.Evidence
}

// record returns a history with the answers of some clients.
func record(h *history.History, told []answers) *history.History {
	r := *h
	for _, a := range told {
		r.Ops = append(r.Ops, a.ops...)
	}
	slices.SortFunc(r.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
	return &r
}

// entries counts what is on its way from Redis to MySQL.
func (l *lane) entries(ctx context.Context, item int64) int64 {
	return l.keys.XLen(ctx, fmt.Sprintf("stock:{%d}:sales", item)).Val()
}
