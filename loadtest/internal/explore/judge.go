package explore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/verify"
)

// damage tells kinds of damage by the figures of a verdict. The first that applies names it.
var damage = []struct {
	kind  string
	units func(verify.Verdict) int64
}{
	{trace.SoldTwice, func(v verify.Verdict) int64 { return v.Duplicates }},
	{trace.InPart, func(v verify.Verdict) int64 { return v.PartialOrders }},
	{trace.EndedTwice, func(v verify.Verdict) int64 { return v.Reservations.EndedTwice }},
	{trace.EndedLate, func(v verify.Verdict) int64 { return v.Reservations.LateConfirmations }},
	{trace.EndedEarly, func(v verify.Verdict) int64 { return v.Reservations.EndedEarly }},
	{trace.LostUpdate, func(v verify.Verdict) int64 { return v.LostUpdates }},
	{trace.Oversold, func(v verify.Verdict) int64 { return v.Oversold }},
	{trace.Leaked, func(v verify.Verdict) int64 { return v.Leaked }},
	{trace.Undersold, func(v verify.Verdict) int64 { return v.Undersold }},
	{trace.Different, func(v verify.Verdict) int64 { return v.DifferentAnswers }},
	{trace.NoSuchHold, func(v verify.Verdict) int64 { return v.Reservations.WrongStates }},
	{trace.LedgerGap, func(v verify.Verdict) int64 { return v.LedgerGaps }},
	{trace.Overlap, func(v verify.Verdict) int64 { return v.Overlaps }},
}

// kind names the damage of a verdict.
func kind(v verify.Verdict) string {
	switch v.Result {
	case verify.Correct:
		return trace.Right
	case verify.Inconclusive:
		return trace.Unjudged
	}
	for _, d := range damage {
		if d.units(v) > 0 {
			return d.kind
		}
	}
	return trace.OtherWrong
}

// judge reads what the schedule left, and has it judged as a load is.
func (x *session) judge(ctx context.Context, s *schedule, o trace.Execution) (trace.Execution, error) {
	told := make([]answers, 0, len(s.actors))
	for _, a := range s.actors {
		if !a.started {
			continue
		}
		if a.err != nil {
			return o, a.err
		}
		if a.lost {
			a.answers.forget()
		}
		a.answers.delay(a.executed)
		told = append(told, a.answers)
	}
	script, isScript := x.lane.subject.(*scripted)
	if isScript && script.Check {
		var err error
		o.Kind, err = script.check(ctx, s.items, told)
		return o, err
	}
	all := told
	if x.workload.cancelsSale() {
		last, err := x.cancelAgain(ctx, s.items)
		if err != nil {
			return o, err
		}
		all = append(slices.Clip(told), last)
	}
	h, err := x.left(ctx, s.items, all)
	if err != nil {
		return o, err
	}
	h.Run.Exclusive = h.Run.Exclusive && len(s.struck) == 0
	h.End.StartedNS, h.End.EndedNS = s.began, monotonic.Now()
	o.Kind, o.Evidence = judgeAnswers(h, all)
	if o.Kind == trace.Right && !isScript && len(s.struck) == 0 && !slices.ContainsFunc(told, answers.served) {
		o.Kind, o.Evidence = trace.NotServed, []string{"no request was served, and no fault has struck"}
	}
	if x.workload.cancelsSale() && o.Kind == trace.Right {
		o.Kind, o.Evidence = x.givenBack(all[len(told)].ops[0], h.End.Final[s.items[0]])
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

// delay makes requests begin with the first of their steps. All requests are sent at the beginning. Until one of its
// steps is executed, or it enters its critical section, a request is like one that is sent later.
func (a *answers) delay(executed []int64) {
	for i := range a.ops {
		op := &a.ops[i]
		sent := op.SentNS
		began := slices.IndexFunc(executed, func(at int64) bool { return at > sent && at < op.ReceivedNS })
		if began >= 0 {
			op.SentNS = executed[began]
		}
		if op.EnteredNS > sent {
			op.SentNS = min(op.SentNS, op.EnteredNS)
		}
	}
}

// forget makes the last answer unknown: a client whose replica has died cannot know more.
func (a *answers) forget() {
	if n := len(a.ops); n > 0 {
		op := &a.ops[n-1]
		op.Outcome, op.State, op.Sold, op.Cancelled, op.GivenBack = history.Unknown, "", 0, 0, 0
	}
}

// served reports whether a client knows what became of a request, and the service was not busy.
func (a answers) served() bool {
	return slices.ContainsFunc(a.ops, func(op history.Op) bool { return certain(op.Outcome) })
}

func certain(o history.Outcome) bool { return o != history.Busy && o != history.Unknown }

// mayHold reports whether a deduction may have held units for a while that it has not sold.
func (a answers) mayHold() bool {
	return slices.ContainsFunc(a.ops, func(op history.Op) bool { return op.Sells() && !certain(op.Outcome) })
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
		Ledger: x.keyed() && x.store == oracle.MySQL && x.lane.subject == nil,
		Set:    x.stockOf(items), Initial: x.stockOf(items),
	}, End: &history.End{}}
	var err error
	if takesHolds(x.strategy, x.store) {
		if slices.ContainsFunc(told, answers.mayHold) {
			h.Run.Reserves = true
		}
		if err = x.endReservations(ctx, items[0], told); err != nil {
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
	if h.Run.Ledger {
		if h.Ledger, err = x.lane.oracle.Ledger(ctx, requestPrefix(items[0])); err != nil {
			return nil, err
		}
		h.End.LedgerRead = true
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
	at := slices.IndexFunc(told, func(a answers) bool { return len(a.ops) > 0 && a.ops[0].Kind == stockSet })
	if at < 0 {
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
	set := told[at].ops[0]
	clients := slices.Delete(told, at, at+1)
	if set.Outcome != history.Sold { // it may not have been set
		if v := verify.Judge(record(h, clients)); v.Result == verify.Correct {
			return trace.Right, nil
		}
	}
	return judgeSet(h, set, apart(clients))
}

// apart returns the answers to each request by themselves. Those about a reservation belong together.
func apart(clients []answers) (all []answers) {
	for _, a := range clients {
		var reserved answers
		for _, op := range a.ops {
			if op.Kind == history.Hold || op.Reservation != "" {
				reserved.ops = append(reserved.ops, op)
				continue
			}
			all = append(all, answers{ops: []history.Op{op}})
		}
		if len(reserved.ops) > 0 {
			all = append(all, reserved)
		}
	}
	return all
}

// record returns a history with the answers of some clients.
func record(h *history.History, told []answers) *history.History {
	r := *h
	for _, a := range told {
		r.Ops = append(r.Ops, a.ops...)
	}
	slices.SortFunc(r.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
	holds := slices.ContainsFunc(r.Ops, func(op history.Op) bool { return op.Kind == history.Hold })
	r.Run.Reserves = r.Run.Reserves || holds
	return &r
}

// judgeSet judges a schedule in which the stock was set: every request was served before that or after it. The schedule
// is right if some division of the requests explains all answers and what is left.
func judgeSet(h *history.History, set history.Op, requests []answers) (damage string, evidence []string) {
	for division := range 1 << len(requests) {
		var before, after []answers
		for i, a := range requests {
			if division&(1<<i) == 0 {
				before = append(before, a)
			} else {
				after = append(after, a)
			}
		}
		if !possible(before, after, set) {
			continue
		}
		early, late := judgeDivision(h, set, before, after)
		if early.Result != verify.Correct {
			damage, evidence = cmp.Or(damage, kind(early)), slices.Concat(evidence, early.Evidence)
			continue
		}
		if late.Result == verify.Correct {
			return trace.Right, nil
		}
		damage, evidence = kind(late), slices.Concat(evidence, late.Evidence)
	}
	return damage, evidence
}

// judgeDivision judges the clients before the stock was set, who left what they did not buy, and those after it.
func judgeDivision(h *history.History, set history.Op, before, after []answers) (early, late verify.Verdict) {
	first, second := record(h, before), record(h, after)
	first.Ledger, second.Ledger = rowsOf(h.Ledger, first.Ops), rowsOf(h.Ledger, second.Ops)
	sold := load.ConfirmedUnits(first.Ops)[set.GoodsID]
	for _, op := range first.Ops {
		if op.Outcome == history.Sold {
			sold += op.Count
		}
	}
	left := map[int64]int64{set.GoodsID: h.Run.Initial[set.GoodsID] - sold}
	first.End = &history.End{Final: left, LedgerRead: h.End.LedgerRead}
	second.Run.Set = map[int64]int64{set.GoodsID: set.Count}
	second.Run.Initial = second.Run.Set
	return verify.Judge(first), verify.Judge(second)
}

func rowsOf(ledger []history.Entry, ops []history.Op) (rows []history.Entry) {
	for _, row := range ledger {
		if slices.ContainsFunc(ops, func(op history.Op) bool { return op.Name == row.Key }) {
			rows = append(rows, row)
		}
	}
	return rows
}

// possible reports whether clients can have been served before and after the stock was set, by the times of their
// answers. What became of a request without an answer may happen at any time after it was sent.
func possible(before, after []answers, set history.Op) bool {
	for _, a := range before {
		if sent, _ := a.times(); sent > set.ReceivedNS {
			return false
		}
	}
	for _, a := range after {
		if _, answered := a.times(); answered < set.SentNS {
			return false
		}
	}
	return true
}

// times returns when the first request was sent, and when the last one was answered.
func (a answers) times() (sent, answered int64) {
	sent = math.MaxInt64
	for _, op := range a.ops {
		switch {
		case op.Kind == history.Inspect:
			continue
		case op.Outcome == history.Unknown:
			answered = math.MaxInt64
		}
		sent, answered = min(sent, op.SentNS), max(answered, op.ReceivedNS)
	}
	return sent, answered
}

// entries counts what is on its way from Redis to MySQL.
func (l *lane) entries(ctx context.Context, item int64) int64 {
	return l.keys.XLen(ctx, fmt.Sprintf("stock:{%d}:sales", item)).Val()
}
