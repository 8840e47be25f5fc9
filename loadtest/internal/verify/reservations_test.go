package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Times of the simulation, in nanoseconds.
const (
	msNS     = int64(1_000_000)
	ttlMS    = 100
	aheadNS  = 5_000_000_000 // the service's clock
	buyersIn = 300
)

// bugs are what a simulated service does wrong.
type bugs struct {
	confirmsExpired bool  // and keeps the units that it has given back
	cancelsTwice    bool  // gives the units back again
	neverGivesBack  bool  // what has expired
	sweepsEveryNS   int64 // and refuses buyers meanwhile; 0: it takes back at once
	forgetsKeys     bool
	expiresEarlyNS  int64
	sellsFree       bool // refuses 1 hold in 10 although there is enough
}

// desk is a service that takes reservations, in virtual time: every request takes effect at one moment between being
// sent and being answered.
type desk struct {
	bugs
	timetable
	lost   float64 // share of requests whose reply is lost; half of them take effect
	random *rand.Rand
	h      *history.History
	free   int64
	held   []*booking
	byKey  map[string]*booking
	swept  int64
}

type booking struct {
	id                      string
	count                   int64
	state                   string
	created, expires, ended int64 // on the service's clock
	back                    bool  // its units were given back
}

// reservations returns the history of a service with bugs.
func reservations(seed uint64, lost float64, b bugs) *history.History {
	const units = 60
	d := &desk{
		bugs: b, lost: lost, random: rand.New(rand.NewPCG(seed, 2)), free: units, byKey: map[string]*booking{},
		h: &history.History{Run: history.Run{
			Cell: history.Cell{Subject: history.Subject{
				Strategy: "simulated", Replicas: 2, Workload: history.Workload{Name: "reservations"},
			}},
			Reserves: true, Claim: verify.ClaimCorrect, Scarce: true, JudgedOnly: true,
			Set: map[int64]int64{1: units}, Initial: map[int64]int64{1: units},
		}},
	}
	for n := range buyersIn {
		d.schedule(d.random.Int64N(1000*msNS), func(at int64) { d.buy(at, n, 0) })
	}
	last := d.play() + 2*ttlMS*msNS
	d.takeBack(last + aheadNS)
	for _, held := range slices.Clone(d.held) {
		d.send(last, d.h.Ops[0].Name, history.Inspect, held)
	}
	slices.SortFunc(d.h.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
	d.h.End = &history.End{StartedNS: 0, EndedNS: last, Final: map[int64]int64{1: d.free}}
	return d.h
}

// buy is the try of the n-th buyer.
func (d *desk) buy(at int64, n, try int) {
	name := fmt.Sprintf("buyer-%d-%d", n, try)
	count := int64(1 + n%2)
	keyed := n%3 == 0
	d.hold(at, name, count, keyed, func(at int64, c history.Op, held *booking) {
		switch {
		case c.Outcome == history.SoldOut && try < 20:
			d.schedule(at+7*msNS, func(at int64) { d.buy(at, n, try+1) })
		case c.Outcome == history.Done:
			d.end(at, n, name, held)
			if keyed {
				d.schedule(at+msNS, func(at int64) { d.hold(at, name, count, true, nil) })
			}
		}
	})
}

// end does with a reservation what the n-th buyer does.
func (d *desk) end(at int64, n int, name string, held *booking) {
	late := held.expires - aheadNS + 4*msNS
	then := func(at int64, kinds ...string) {
		for i, kind := range kinds {
			d.schedule(at+int64(i+1)*5*msNS, func(at int64) { d.send(at, name, kind, held) })
		}
	}
	switch n % 8 {
	case 0:
		then(at, history.Confirm, history.Confirm)
	case 1:
		then(at, history.Cancel, history.Cancel)
	case 2, 3:
		then(late, history.Confirm, history.Inspect)
	case 4:
		then(at, history.Confirm, history.Cancel)
	case 5:
		then(at, history.Cancel, history.Confirm)
	case 6:
		then(at, history.Inspect, history.Inspect)
	}
}

func (d *desk) hold(at int64, name string, count int64, keyed bool, then func(int64, history.Op, *booking)) {
	now := at + aheadNS
	if d.sweepsEveryNS == 0 {
		d.takeBack(now)
	} else if now >= d.swept+d.sweepsEveryNS {
		d.swept = now
		d.takeBack(now)
	}
	c := d.call(at, name, history.Hold)
	c.Count, c.Keyed = count, keyed
	effective := !d.loses(&c)
	held := d.byKey[name]
	switch {
	case !effective && d.random.IntN(2) == 0:
	case held != nil && !d.forgetsKeys:
		d.tell(&c, held)
		c.Replayed = true
	case d.free < count || d.sellsFree && d.random.IntN(10) == 0:
		d.answer(&c, history.SoldOut, "/problems/sold-out")
	default:
		d.free -= count
		held = &booking{
			id: fmt.Sprintf("id-%d", len(d.held)), count: count, state: history.Held, created: now,
			expires: now + ttlMS*msNS,
		}
		d.held = append(d.held, held)
		if keyed {
			d.byKey[name] = held
		}
		d.tell(&c, held)
	}
	d.h.Ops = append(d.h.Ops, c)
	if then != nil {
		then(c.ReceivedNS, c, held)
	}
}

// send carries out a request about a reservation.
func (d *desk) send(at int64, name, kind string, held *booking) {
	now := at + aheadNS
	if d.sweepsEveryNS == 0 {
		d.takeBack(now)
	}
	c := d.call(at, name, kind)
	c.Reservation, c.Count = held.id, held.count
	if kind == history.Inspect || !d.loses(&c) || d.random.IntN(2) == 0 {
		d.change(kind, held, now)
		refusal := map[[2]string]string{
			{history.Confirm, history.Expired}:   history.ProblemExpired,
			{history.Confirm, history.Cancelled}: history.ProblemCancelled,
			{history.Cancel, history.Confirmed}:  history.ProblemConfirmed,
		}[[2]string{kind, held.state}]
		if refusal != "" {
			d.answer(&c, history.Refused, refusal)
		} else {
			d.tell(&c, held)
		}
	}
	d.h.Ops = append(d.h.Ops, c)
}

// change ends a reservation.
func (d *desk) change(kind string, held *booking, now int64) {
	lapsed := now >= held.expires-d.expiresEarlyNS
	switch {
	case kind == history.Confirm && (held.state == history.Held && !lapsed ||
		d.confirmsExpired && held.state == history.Expired):
		held.state, held.ended = history.Confirmed, now
	case kind == history.Cancel && (held.state == history.Held && !lapsed ||
		d.cancelsTwice && held.state == history.Cancelled):
		held.state, held.ended = history.Cancelled, now
		d.free += held.count
	case held.state == history.Held && lapsed:
		held.state = history.Expired
	}
}

// takeBack gives back the units of what has expired.
func (d *desk) takeBack(now int64) {
	for _, held := range d.held {
		if held.state == history.Held && now >= held.expires-d.expiresEarlyNS {
			held.state, held.ended = history.Expired, now
		}
		if held.state == history.Expired && !held.back && !d.neverGivesBack {
			held.back = true
			d.free += held.count
		}
	}
}

func (d *desk) call(at int64, name, kind string) history.Op {
	sent := at - d.random.Int64N(2*msNS)
	return history.Op{
		Kind: kind, Name: name, GoodsID: 1, Count: 1, TTLMS: ttlMS, SentNS: sent,
		ReceivedNS: at + 1 + d.random.Int64N(2*msNS), Outcome: history.Unknown,
		Replica:   fmt.Sprintf("replica-%d", d.random.IntN(2)),
		RequestID: fmt.Sprintf("request-%d", len(d.h.Ops)),
	}
}

// loses decides whether the client gets no reply.
func (d *desk) loses(c *history.Op) bool {
	if d.random.Float64() >= d.lost {
		return false
	}
	c.Error = "timeout"
	return true
}

func (d *desk) answer(c *history.Op, outcome history.Outcome, problem string) {
	if c.Error == "" {
		c.Outcome, c.Error = outcome, problem
	}
}

func (d *desk) tell(c *history.Op, held *booking) {
	if c.Error != "" {
		return
	}
	c.Outcome, c.Reservation, c.State = history.Done, held.id, held.state
	c.CreatedUS, c.ExpiresUS, c.EndedUS = held.created/1000, held.created/1000+ttlMS*1000, held.ended/1000
}

func TestCorrectReservationsAreNeverFoundWrong(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		lost := float64(seed%3) * 0.02
		v := verify.Judge(reservations(seed, lost, bugs{}))
		if v.Result == verify.Wrong || lost == 0 && v.Result != verify.Correct {
			t.Errorf("seed %d, %.0f %% of the replies lost: %s: %q", seed, 100*lost, v.Result, v.Evidence)
		}
		if f := v.Reservations; f.Confirmed == 0 || f.Cancelled == 0 || f.Expired == 0 ||
			f.Held < f.Confirmed+f.Cancelled+f.Expired {
			t.Errorf("seed %d: %+v", seed, f)
		}
	}
}

func TestBugsOfReservationsAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		bugs  bugs
		found func(verify.Verdict) int64
		says  string
	}{
		{"confirms what has expired", bugs{confirmsExpired: true},
			func(v verify.Verdict) int64 { return v.Reservations.LateConfirmations }, "after its time had ended"},
		{"cancel twice gives back twice", bugs{cancelsTwice: true},
			func(v verify.Verdict) int64 { return v.LostUpdates + v.Oversold }, "sold but still in stock"},
		{"expired units never come back", bugs{neverGivesBack: true},
			func(v verify.Verdict) int64 { return v.Reservations.GhostUnits }, "units gone that nobody bought"},
		{"refuses while expired units are free", bugs{sweepsEveryNS: 60 * msNS},
			func(v verify.Verdict) int64 { return v.Undersold }, "were left"},
		{"refuses while units are free", bugs{sellsFree: true},
			func(v verify.Verdict) int64 { return v.Undersold }, "were left"},
		{"holds again for a key", bugs{forgetsKeys: true},
			func(v verify.Verdict) int64 { return v.Duplicates }, "made twice"},
		{"expires early", bugs{expiresEarlyNS: 95 * msNS},
			func(v verify.Verdict) int64 { return v.Reservations.EndedEarly }, "left"},
	} {
		for seed := range uint64(2) {
			if v := expect(t, reservations(seed, 0, test.bugs), verify.Wrong, test.says); test.found(v) == 0 {
				t.Errorf("%s, seed %d: %+v", test.name, seed, v.Figures)
			}
		}
	}
}

func TestAnswersAboutReservationsThatCannotBe(t *testing.T) {
	t.Parallel()
	is := func(kind string, outcome history.Outcome, state string) func(history.Op) bool {
		return func(c history.Op) bool { return c.Kind == kind && c.Outcome == outcome && c.State == state }
	}
	for _, test := range []struct {
		name   string
		fits   func(history.Op) bool
		change func(*history.Op)
		says   string
	}{
		{"a reservation is not known", is(history.Inspect, history.Done, history.Confirmed), func(c *history.Op) {
			c.Outcome, c.State, c.Error = history.Refused, "", history.ProblemUnknownHold
		}, "the service does not know it"},
		{"held after its end", is(history.Inspect, history.Done, history.Confirmed), func(c *history.Op) {
			c.State = history.Held
		}, "is held, which cannot be"},
		{"two ends", is(history.Inspect, history.Done, history.Expired), func(c *history.Op) {
			c.State = history.Cancelled
		}, "has ended twice"},
		{"a confirmation that says cancelled", is(history.Confirm, history.Done, history.Confirmed),
			func(c *history.Op) { c.State = history.Cancelled }, "which cannot be"},
		{"it lasts longer for some", is(history.Inspect, history.Done, history.Expired), func(c *history.Op) {
			c.ExpiresUS++
		}, "told different times"},
		{"it ended at another time", is(history.Inspect, history.Done, history.Confirmed), func(c *history.Op) {
			c.EndedUS--
		}, "told different times"},
		{"a confirmation of its own words late", is(history.Confirm, history.Done, history.Confirmed),
			func(c *history.Op) { c.EndedUS = c.ExpiresUS + 1 }, "after its time had ended"},
		{"a reply for something else", is(history.Cancel, history.Done, history.Cancelled), func(c *history.Op) {
			c.Outcome, c.Error = history.Unknown, history.Mismatch
		}, "for something else"},
		{"a refusal that tells enough", is(history.Hold, history.SoldOut, ""), func(c *history.Op) {
			c.Remaining = c.Count
		}, "were left"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := reservations(1, 0, bugs{})
			test.change(find(h, test.fits))
			expect(t, h, verify.Wrong, test.says)
		})
	}
}

func TestReservationsThatProveTooLittle(t *testing.T) {
	t.Parallel()
	keep := func(fits func(history.Op) bool) func(*history.History) {
		return func(h *history.History) { h.Ops = slices.DeleteFunc(h.Ops, fits) }
	}
	for _, test := range []struct {
		name   string
		change func(*history.History)
		says   string
	}{
		{"interrupted", func(h *history.History) { h.End = nil }, "interrupted"},
		{"one replica", func(h *history.History) {
			for i := range h.Ops {
				h.Ops[i].Replica = "replica-0"
			}
		}, "ended by another replica"},
		{"no late confirmation", keep(func(c history.Op) bool { return c.Error == history.ProblemExpired }),
			"no reservation was confirmed late"},
		{"no repeated key", keep(func(c history.Op) bool { return c.Replayed }), "held again with its key"},
		{"rejected", func(h *history.History) {
			h.Ops = append(h.Ops, history.Op{Kind: history.Inspect, Outcome: history.Rejected, Status: 400})
		}, "1 of"},
		{"a clock that is set", func(h *history.History) {
			for i := range h.Ops[len(h.Ops)/2:] {
				h.Ops[len(h.Ops)/2+i].SentNS += 50 * msNS
				h.Ops[len(h.Ops)/2+i].ReceivedNS += 50 * msNS
			}
		}, "contradict the lab's clock"},
	} {
		h := reservations(1, 0, bugs{})
		test.change(h)
		expect(t, h, verify.Inconclusive, test.says)
	}
}

func TestUnitsThatADeductionHasTakenAreNotFree(t *testing.T) {
	t.Parallel()
	judged := func(others ...history.Op) verify.Verdict {
		refused := history.Op{
			Kind: history.Deduct, Name: "b", GoodsID: 1, Count: 2, SentNS: 30, ReceivedNS: 40, Outcome: history.SoldOut,
		}
		return verify.Judge(&history.History{
			Run: history.Run{
				Reserves: true, Claim: verify.ClaimCorrect, Scenario: "two deductions",
				Set: map[int64]int64{1: 2}, Initial: map[int64]int64{1: 2},
			},
			Ops: append(others, refused), End: &history.End{Final: map[int64]int64{1: 2}},
		})
	}
	unknown := history.Op{
		Kind: history.Deduct, Name: "a", GoodsID: 1, Count: 1, SentNS: 10, ReceivedNS: 20, Outcome: history.Unknown,
	}
	if v := judged(unknown); v.Result != verify.Correct { // it has held its unit for a while
		t.Errorf("%s: %v", v.Result, v.Evidence)
	}
	unknown.SentNS, unknown.ReceivedNS = 50, 60
	for _, v := range []verify.Verdict{judged(), judged(unknown)} {
		if v.Result != verify.Wrong || v.Undersold != 1 {
			t.Errorf("nobody had taken units before the request: %s, %v", v.Result, v.Evidence)
		}
	}
}
