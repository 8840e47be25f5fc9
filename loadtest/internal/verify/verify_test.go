package verify_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// figures are what distinguishes one bug from another.
type figures struct {
	result                                                          verify.Result
	lost, oversold, leaked, undersold, duplicates, overlaps, unsure int64
	linearizable                                                    string
}

func of(v verify.Verdict) figures {
	linearizable := "undecided"
	if v.Linearizable != nil {
		linearizable = fmt.Sprint(*v.Linearizable)
	}
	return figures{
		v.Result, v.LostUpdates, v.Oversold, v.Leaked, v.Undersold, v.Duplicates, v.Overlaps, v.UnknownUnits, linearizable,
	}
}

// find returns the first request that fits. There must be one.
func find(h *history.History, fits func(op history.Op) bool) *history.Op {
	return &h.Ops[slices.IndexFunc(h.Ops, fits)]
}

func isSoldOut(op history.Op) bool { return op.Outcome == history.SoldOut }

func isRestock(op history.Op) bool { return op.Kind == history.Restock }

// sales returns the indexes of the sales in the order in which they took effect.
func sales(h *history.History) []int {
	var at []int
	for i, op := range h.Ops {
		if op.Kind == history.Deduct && op.Outcome == history.Sold {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(i, j int) int { return cmp.Compare(h.Ops[j].Remaining, h.Ops[i].Remaining) })
	return at
}

// neverHappened undoes the nth sale: every later buyer, and the oracle, see one sale less.
func neverHappened(h *history.History, n int) *history.Op {
	at := sales(h)
	for _, i := range at[n+1:] {
		h.Ops[i].Remaining += h.Ops[at[n]].Count
	}
	h.End.Final[1] += h.Ops[at[n]].Count
	return &h.Ops[at[n]]
}

// lose makes the outcome of a request unknown.
func lose(op *history.Op) {
	op.Outcome, op.Status, op.Remaining, op.EnteredNS, op.LeftNS = history.Unknown, 0, 0, 0, 0
}

// plantedBug is a history of a correct service that is changed as a bug would change it.
type plantedBug struct {
	name  string
	shop  shop
	plant func(h *history.History)
	want  figures
	says  string // part of the evidence
}

func TestPlantedBugsAreToldApart(t *testing.T) {
	t.Parallel()
	for _, bug := range plantedBugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			h := simulate(bug.shop)
			bug.plant(h)
			if got := of(expect(t, h, bug.want.result, bug.says)); got != bug.want {
				t.Errorf("got  %+v\nwant %+v", got, bug.want)
			}
		})
	}
}

// expect judges a history, and fails the test if the result is another one, or if the evidence does not say something.
// A run that is correct has no evidence, unless it should say something.
func expect(t *testing.T, h *history.History, want verify.Result, says string) verify.Verdict {
	t.Helper()
	v := verify.Judge(h)
	evidence := strings.Join(v.Evidence, "\n")
	if v.Result != want || !strings.Contains(evidence, says) || (says == "" && want == verify.Correct && evidence != "") {
		t.Errorf("got %s, want %s and %q:\n%s", v.Result, want, says, evidence)
	}
	return v
}

var plantedBugs = []plantedBug{
	{"nothing", plenty(1), func(*history.History) {},
		figures{result: verify.Correct, linearizable: "true"}, ""},
	{"a lost update", plenty(3), func(h *history.History) {
		neverHappened(h, 200) // overwritten by the next sale, which had read the same stock
	}, figures{result: verify.Wrong, lost: 1, linearizable: "false"}, "were both told 799 remaining"},
	{"an oversell by one", flashSale(4), func(h *history.History) {
		op := find(h, isSoldOut)
		op.Outcome, op.Remaining = history.Sold, -1
		h.End.Final[1] = -1
	}, figures{result: verify.Wrong, oversold: 1, linearizable: "false"},
		"units sold beyond the stock: 1 (151 sold, of 150)"},
	{"a leak", plenty(5), func(h *history.History) { h.End.Final[1]-- },
		figures{result: verify.Wrong, leaked: 1, linearizable: "false"}, "units gone that nobody bought: 1 ("},
	{"a leak at whose expense a buyer is refused", flashSale(6), func(h *history.History) {
		last := &h.Ops[sales(h)[149]]
		last.Outcome, last.Remaining, last.EnteredNS, last.LeftNS = history.SoldOut, 0, 0, 0
	}, figures{result: verify.Wrong, leaked: 1, linearizable: "false"}, ""},
	{"a false sold-out", plenty(7), func(h *history.History) {
		op := neverHappened(h, 100)
		op.Outcome, op.Status, op.Remaining, op.EnteredNS, op.LeftNS = history.SoldOut, 409, 0, 0, 0
	}, figures{result: verify.Wrong, undersold: 1, linearizable: "false"}, "was refused while at least"},
	{"a sold-out that contradicts itself", flashSale(8), func(h *history.History) { find(h, isSoldOut).Remaining = 1 },
		figures{result: verify.Wrong, undersold: 1, linearizable: "false"},
		"wanted 1 and was refused while at least 1 were left"},
	{"a duplicate", plenty(9), func(h *history.History) {
		at := sales(h)
		h.Ops[at[41]].Name = h.Ops[at[40]].Name
	}, figures{result: verify.Wrong, duplicates: 1, linearizable: "true"}, "was made 2 times"},
	{"a duplicate after a try without an answer", plenty(10), func(h *history.History) {
		at := sales(h)
		lose(&h.Ops[at[40]])
		h.Ops[at[41]].Name = h.Ops[at[40]].Name
	}, figures{result: verify.Wrong, duplicates: 1, unsure: 1, linearizable: "true"},
		"units gone beyond all deductions: 1 ("},
	{"the same answer given twice", plenty(11), func(h *history.History) {
		at := sales(h)
		again := h.Ops[at[40]]
		again.RequestID = "again"
		again.SentNS, again.ReceivedNS = h.End.EndedNS, h.End.EndedNS+100
		h.Ops = append(h.Ops, again)
	}, figures{result: verify.Correct, linearizable: "true"}, ""},
	{"an overlap", plenty(12), func(h *history.History) {
		at := sales(h)
		h.Ops[at[41]].EnteredNS = h.Ops[at[40]].LeftNS - 1
	}, figures{result: verify.Wrong, overlaps: 1, linearizable: "true"}, "overlap by 1ns"},
	{"critical sections that touch", plenty(13), func(h *history.History) {
		at := sales(h)
		h.Ops[at[41]].EnteredNS = h.Ops[at[40]].LeftNS
	}, figures{result: verify.Correct, linearizable: "true"}, ""},
	{"a critical section of no length inside another", plenty(14), func(h *history.History) {
		at := sales(h)
		h.Ops[at[41]].EnteredNS = h.Ops[at[40]].EnteredNS + 1
		h.Ops[at[41]].LeftNS = h.Ops[at[41]].EnteredNS
	}, figures{result: verify.Correct, linearizable: "true"}, ""},
	{"an overlap that is not claimed never to happen", plenty(15), func(h *history.History) {
		at := sales(h)
		h.Run.Exclusive = false
		h.Ops[at[41]].EnteredNS = h.Ops[at[40]].LeftNS - 1
	}, figures{result: verify.Correct, overlaps: 1, linearizable: "true"}, ""},
	{"an unknown outcome that took effect", plenty(16), func(h *history.History) {
		lose(&h.Ops[sales(h)[123]])
	}, figures{result: verify.Correct, unsure: 1, linearizable: "true"}, ""},
	{"an unknown outcome that did not take effect", plenty(17), func(h *history.History) {
		lose(neverHappened(h, 123))
	}, figures{result: verify.Correct, unsure: 1, linearizable: "true"}, ""},
	{"an unknown outcome that took effect long after its client gave up", plenty(18), func(h *history.History) {
		op := neverHappened(h, 50)
		lose(op)
		at := sales(h)
		for _, i := range at[300:] {
			h.Ops[i].Remaining--
		}
		h.End.Final[1]--
	}, figures{result: verify.Correct, unsure: 1, linearizable: "true"}, ""},
	{"a unit gone before the request with the unknown outcome was sent", plenty(19), func(h *history.History) {
		at := sales(h)
		early, late := &h.Ops[at[50]], &h.Ops[at[350]]
		lose(early)
		early.SentNS, early.ReceivedNS = late.SentNS, late.ReceivedNS
	}, figures{result: verify.Wrong, unsure: 1, linearizable: "false"},
		"no sequence of the requests explains their answers"},
	{"swapped answers with correct sums", plenty(20), func(h *history.History) {
		at := sales(h)
		early, late := &h.Ops[at[50]], &h.Ops[at[350]]
		early.Remaining, late.Remaining = late.Remaining, early.Remaining
	}, figures{result: verify.Wrong, linearizable: "false"}, "remaining before request"},
	{"an item that does not compensate for another", tail(30), func(h *history.History) {
		h.End.Final[1]++
		h.End.Final[2]--
	}, figures{result: verify.Wrong, lost: 1, leaked: 1, linearizable: "false"}, ""},
	{"more unknown counts than the checker takes", plenty(44), func(h *history.History) {
		for n := range 9 {
			op := neverHappened(h, 300-n*20)
			op.Count = int64(n + 1)
			lose(op)
		}
	}, figures{result: verify.Correct, unsure: 45, linearizable: "undecided"}, "more than 8 different counts"},
}

// hush leaves the remaining stock out of every sale, as a strategy may if it declares it.
func hush(h *history.History) {
	h.Run.OmitsRemaining = true
	for i, op := range h.Ops {
		if op.Outcome == history.Sold {
			h.Ops[i].Remaining, h.Ops[i].OmitsRemaining = 0, true
		}
	}
}

// crowded returns the history of a flash sale to 100 users. unknown is the share of lost replies.
func crowded(requests int, unknown float64) *history.History {
	return simulate(shop{
		seed: 31, users: 100, requests: requests, goods: 1, stock: int64(requests) * 6 / 10, counts: 1,
		unknown: unknown, exclusive: true,
	})
}

// In general, the checker's work is exponential in the number of requests. In a history of the lab it must not have to
// backtrack: at each place, it tries at most one request of each user.
func TestCheckerTriesOnlyRequestsInFlight(t *testing.T) {
	t.Parallel()
	for _, unknown := range []float64{0, 0.01} {
		h := crowded(2000, unknown)
		for _, sales := range []string{"that report what remains", "that do not report what remains"} {
			if most := h.Run.Users * len(h.Ops); !verify.Explains(h, most) {
				t.Errorf("sales %s, %g of the replies lost: not explained after %d tries for %d requests of %d users",
					sales, unknown, most, len(h.Ops), h.Run.Users)
			}
			hush(h)
		}
	}
}

func TestCorrectServiceIsNeverWrong(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		for name, s := range map[string]shop{
			"plenty":                   {goods: 1, stock: 1000, counts: 1},
			"flash sale":               {goods: 1, stock: 100, counts: 1},
			"unequal counts":           {goods: 2, stock: 400, counts: 8},
			"late effects":             {goods: 1, stock: 150, counts: 3, unknown: 0.04},
			"replays":                  {goods: 1, stock: 150, counts: 2, unknown: 0.04, replay: 1},
			"restocks":                 {users: 4, goods: 1, stock: 50, counts: 2, restocks: 0.3},
			"restocks and all":         {users: 4, goods: 2, stock: 50, counts: 3, restocks: 0.3, unknown: 0.03},
			"omitting":                 {goods: 2, stock: 200, counts: 3, omitting: 1},
			"omitting, replays":        {goods: 1, stock: 150, counts: 2, omitting: 1, unknown: 0.04, replay: 1},
			"orders":                   {goods: 8, stock: 120, counts: 3, lines: 5},
			"few orders, lost replies": {requests: 100, goods: 20, stock: 40, counts: 3, lines: 5, unknown: 0.04},
			"retries":                  {goods: 2, stock: 250, counts: 2, retries: 0.3},
			"some omitting and all": {
				users: 4, goods: 2, stock: 50, counts: 3, omitting: 0.3, restocks: 0.3, unknown: 0.03,
			},
			"retries of orders, lost replies": {goods: 8, stock: 150, counts: 2, lines: 3, retries: 0.5, unknown: 0.04},
		} {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				s.seed, s.exclusive, s.late = seed, true, s.unknown > 0
				s.users, s.requests = cmp.Or(s.users, 10), cmp.Or(s.requests, 300)
				v := verify.Judge(simulate(s))
				if strings.Contains(strings.Join(v.Evidence, "\n"), "clock") {
					t.Errorf("the clocks are the lab's, but the judge does not trust them: %q", v.Evidence)
				}
				if v.Result == verify.Wrong {
					t.Errorf("a correct service is wrong: %q", v.Evidence)
				}
				if s.unknown == 0 && v.Result != verify.Correct {
					t.Errorf("a correct service is not cleared: %q", v.Evidence)
				}
			})
		}
	}
}

func TestOneChangedAnswerConvicts(t *testing.T) {
	t.Parallel()
	changes := map[string]func(op *history.Op){
		"one more remaining":       func(op *history.Op) { op.Remaining++ },
		"one less remaining":       func(op *history.Op) { op.Remaining-- },
		"one more sold":            func(op *history.Op) { op.Count++ },
		"a sale answered sold out": func(op *history.Op) { op.Outcome = history.SoldOut },
		"a sale answered busy":     func(op *history.Op) { op.Outcome = history.Busy },
		"a sale of another item":   func(op *history.Op) { op.GoodsID = 3 - op.GoodsID },
	}
	for seed := range uint64(8) {
		for name, change := range changes {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				h := simulate(shop{seed: seed, users: 10, requests: 300, goods: 2, stock: 120, counts: 2, exclusive: true})
				at := sales(h)
				change(&h.Ops[at[int(seed*7)%len(at)]])
				if v := verify.Judge(h); v.Result != verify.Wrong {
					t.Errorf("got %s: %q", v.Result, v.Evidence)
				}
			})
		}
	}
}

// turnAway adds n buyers who were answered busy at a time.
func turnAway(h *history.History, n int, at int64) {
	for i := range n {
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Deduct, Name: fmt.Sprint("late-", i), GoodsID: 1, Count: 1, SentNS: at, ReceivedNS: at + 100,
			Status: 503, Outcome: history.Busy, Replica: "replica-1",
		})
	}
}

var changedRuns = map[string]struct {
	shop   shop
	change func(h *history.History)
	want   verify.Result
	says   string
}{
	"a rejected request": {plenty(60), func(h *history.History) {
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Deduct, Name: "odd", GoodsID: 99, Count: 1, Status: 404, Outcome: history.Rejected,
			Error: "unknown-goods",
		})
	}, verify.Inconclusive, "1 of 401 requests were rejected, such as request odd (404 unknown-goods)"},
	"many turned away while stock was left": {plenty(61), func(h *history.History) { turnAway(h, 30, h.End.EndedNS/2) },
		verify.Inconclusive, "30 of 430 buyers were turned away as busy while stock was left"},
	"a few turned away while stock was left": {plenty(62), func(h *history.History) {
		turnAway(h, 20, h.End.EndedNS/2)
	}, verify.Correct, ""},
	"many turned away when all was sold": {flashSale(63), func(h *history.History) {
		turnAway(h, 100, h.End.EndedNS)
	}, verify.Correct, ""},
	"many turned away who were served later": {plenty(64), func(h *history.History) {
		for i, at := range sales(h)[:50] {
			turnAway(h, 1, h.Ops[at].SentNS)
			h.Ops[400+i].Name = h.Ops[at].Name
		}
	}, verify.Correct, ""},
	"sales that do not report what remains, although they should": {plenty(69), func(h *history.History) {
		hush(h)
		h.Run.OmitsRemaining = false
	}, verify.Inconclusive, "400 sales did not report what remains, which the strategy should"},
	"sales that do not report what remains, as declared": {plenty(72), hush, verify.Correct, ""},
	"refusals that do not tell what is left": {tail(1), func(h *history.History) {
		for i := range h.Ops {
			if op := &h.Ops[i]; op.Outcome == history.SoldOut {
				op.Remaining, op.OmitsRemaining = 0, true
			}
		}
	}, verify.Correct, ""},
	"one replica of two": {plenty(65), func(h *history.History) {
		for i := range h.Ops {
			h.Ops[i].Replica = "replica-2"
		}
	}, verify.Inconclusive, "only 1 of 2 replicas answered"},
	"one replica of one": {plenty(66), func(h *history.History) {
		h.Run.Replicas = 1
		for i := range h.Ops {
			h.Ops[i].Replica = "replica-2"
		}
	}, verify.Correct, ""},
	"a flash sale that never sold out": {plenty(67), func(h *history.History) {
		h.Run.Scarce = true
	}, verify.Inconclusive, "demand never exceeded the stock"},
	"a flash sale": {flashSale(68), func(h *history.History) { h.Run.Scarce = true }, verify.Correct, ""},
	"one pair in flight": {shop{users: 1, requests: 300, goods: 1, stock: 1000, counts: 1}, func(h *history.History) {
		h.Ops[10].ReceivedNS = h.Ops[11].SentNS + 1
	}, verify.Inconclusive, "only 1 requests were sent while another one"},
	"two users for a short time": {
		shop{users: 2, requests: verify.MinAnswered, goods: 1, stock: 1000, counts: 1},
		func(*history.History) {}, verify.Correct, "",
	},
	"too few requests": {
		shop{users: 10, requests: verify.MinAnswered - 1, goods: 1, stock: 1000, counts: 1},
		func(*history.History) {}, verify.Inconclusive, "too little load",
	},
	"one user": {
		shop{users: 1, requests: 300, goods: 1, stock: 1000, counts: 1},
		func(*history.History) {}, verify.Inconclusive, "in flight",
	},
	"many lost replies": {
		shop{users: 10, requests: 300, goods: 1, stock: 1000, counts: 1, unknown: 0.2},
		func(*history.History) {}, verify.Inconclusive, "is unknown",
	},
	"an interrupted run": {flashSale(40), func(h *history.History) { h.End = nil }, verify.Inconclusive, "interrupted"},
	"an interrupted run with a lost update": {plenty(41), func(h *history.History) {
		at := sales(h)
		h.Ops[at[10]].Remaining = h.Ops[at[11]].Remaining
		h.End = nil
	}, verify.Wrong, "remaining"},
	"an item that was not read": {plenty(42), func(h *history.History) {
		delete(h.End.Final, 1)
	}, verify.Inconclusive, "the stock was not read"},
	"a service that was its own witness": {plenty(43), func(h *history.History) {
		h.Run.Witness = "service"
	}, verify.Correct, "its own witness"},
	"stores that agree": {plenty(44), func(h *history.History) {
		h.End.Seller = map[int64]int64{1: h.End.Final[1]}
	}, verify.Correct, ""},
	"stores that differ": {plenty(44), func(h *history.History) {
		h.End.Seller = map[int64]int64{1: h.End.Final[1] + 1}
	}, verify.Wrong, "the store that sells has"},
	"a ledger that was not read": {plenty(1), func(h *history.History) {
		keepLedger(h)
		h.Ledger, h.End.LedgerRead = nil, false
	}, verify.Inconclusive, "the ledger was not read"},
	"a restock that was rejected": {plenty(23), func(h *history.History) {
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Restock, Name: "back", GoodsID: 1, Count: 5, SentNS: 2000, ReceivedNS: 3000,
			Status: 404, Outcome: history.Rejected,
		})
	}, verify.Inconclusive, "were rejected"},
	"a receipt for something else": {plenty(4), func(h *history.History) {
		op := &h.Ops[sales(h)[3]]
		lose(op)
		op.Status, op.Error = 200, history.Mismatch
	}, verify.Wrong, "for something else"},
	"a sold-out before all was sold, of sales that do not report what remains": {flashSale(86),
		func(h *history.History) {
			hush(h)
			op := find(h, isSoldOut)
			op.SentNS, op.ReceivedNS = 1000, 2000
		}, verify.Wrong, "wanted 1 and was refused while at least 1"},
	"a sold-out after a restock": {flashSale(87), func(h *history.History) {
		hush(h)
		at := find(h, isSoldOut).SentNS - 10
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Restock, GoodsID: 1, Count: 500, SentNS: at, ReceivedNS: at + 1, Outcome: history.Sold,
		})
		h.End.Final[1] += 500
	}, verify.Wrong, "was refused while at least 500 were left"},
	"a stock that is not what was set": {plenty(80), func(h *history.History) { h.Run.Set[1]++ }, verify.Wrong,
		"item 1: the stock was set to 1001, but before the run there were 1000"},
	"a stock that was found": {plenty(80), func(h *history.History) { h.Run.Set = nil }, verify.Correct, ""},
	"a stock that is not what was set in the store that sells": {plenty(80), func(h *history.History) {
		h.Run.InitialSeller = map[int64]int64{1: 999}
	}, verify.Wrong, "the stock was set to 1000, but before the run there were 999 in the store that sells"},
	"a first answer that is marked as a replay": {plenty(5), func(h *history.History) {
		h.Ops[sales(h)[3]].Replayed = true
	}, verify.Wrong, "was sent once, but its answer is marked as a replay"},
}

func TestAChangedRunIsJudgedByWhatChanged(t *testing.T) {
	t.Parallel()
	for name, c := range changedRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := simulate(c.shop)
			c.change(h)
			expect(t, h, c.want, c.says)
		})
	}
}

func TestAFewBadReadingsOfAClockDoNotHideOverlaps(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(70))
	at := sales(h)
	for i := 0; i < len(at); i += 100 { // 1 %, of either replica
		h.Ops[at[i]].EnteredNS += 100e6
		h.Ops[at[i]].LeftNS += 100e6
	}
	if v := verify.Judge(h); v.Result != verify.Correct || len(v.Evidence) != 1 ||
		!strings.Contains(v.Evidence[0], "4 critical sections lie outside their own requests") {
		t.Errorf("without an overlap: %+v: %q", of(v), v.Evidence)
	}
	h.Ops[at[42]].EnteredNS = h.Ops[at[41]].LeftNS - 1
	if v := verify.Judge(h); v.Result != verify.Wrong || v.Overlaps != 1 {
		t.Errorf("the overlap is not counted: %+v: %q", of(v), v.Evidence)
	}
}

func TestOverlapsAcrossForeignClocksAreNotCounted(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(70))
	for i := range h.Ops {
		if h.Ops[i].Replica == "replica-2" { // its host was booted at another time
			h.Ops[i].EnteredNS += 5e9
			h.Ops[i].LeftNS += 5e9
		}
	}
	at := sales(h)
	foreign := slices.DeleteFunc(slices.Clone(at), func(i int) bool { return h.Ops[i].Replica != "replica-2" })
	h.Ops[foreign[41]].EnteredNS = h.Ops[foreign[40]].LeftNS - 1
	v := verify.Judge(h)
	const remark = "replica replica-2: its clock is not the lab's"
	if v.Result != verify.Correct || v.Overlaps != 0 || len(v.Evidence) != 1 || !strings.Contains(v.Evidence[0], remark) {
		t.Errorf("got %+v: %q", of(v), v.Evidence)
	}

	own := slices.DeleteFunc(at, func(i int) bool { return h.Ops[i].Replica != "replica-1" })
	h.Ops[own[41]].EnteredNS = h.Ops[own[40]].LeftNS - 1
	if v := verify.Judge(h); v.Result != verify.Wrong || v.Overlaps != 1 {
		t.Errorf("an overlap by the lab's own clock is not counted: %+v: %q", of(v), v.Evidence)
	}
}

func TestBaselineIsJudgedByItsClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(h *history.History)
		want   verify.Result
		says   string
	}{
		"sells nothing": {func(*history.History) {}, verify.Correct, ""},
		"sells after all": {
			func(h *history.History) { h.End.Final[1]-- },
			verify.Wrong, "item 1: nothing should be sold, but the stock changed from 150 to 149",
		},
		"adds units": {func(h *history.History) { h.End.Final[1] = 151 }, verify.Wrong, "nothing should be sold"},
		"confirms nothing": {func(h *history.History) {
			for i := range h.Ops {
				h.Ops[i].Outcome = history.SoldOut
			}
		}, verify.Wrong, "only 0 of 400 requests were confirmed"},
		"was interrupted": {func(h *history.History) { h.End = nil }, verify.Inconclusive, "interrupted"},
		"had too little": {
			func(h *history.History) { h.Ops = h.Ops[:verify.MinAnswered-1] },
			verify.Inconclusive, "too little load",
		},
		"had no concurrent requests": {func(h *history.History) { alone(h) }, verify.Correct, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := simulate(flashSale(71))
			h.Run.Claim, h.Run.Exclusive, h.Run.Scarce = verify.ClaimSellsNothing, false, true
			for i := range h.Ops {
				h.Ops[i].Outcome, h.Ops[i].Status, h.Ops[i].Remaining = history.Sold, 200, 150
			}
			h.End.Final[1] = 150
			c.change(h)
			v := verify.Judge(h)
			got := of(v)
			got.result, got.linearizable = "", ""
			if v.Result != c.want || got != (figures{}) || !strings.Contains(strings.Join(v.Evidence, "\n"), c.says) {
				t.Errorf("got %+v: %q, want %s: %q", of(v), v.Evidence, c.want, c.says)
			}
			if held := verify.Held(h.Run, v); held != (c.want == verify.Correct) {
				t.Errorf("%s, and held is %t", v.Result, held)
			}
			if v.Result == verify.Correct && v.Covered != 150 {
				t.Errorf("%d units were covered by the stock of 150", v.Covered)
			}
		})
	}
}

// alone moves every request behind the one before it.
func alone(h *history.History) {
	for i := range h.Ops {
		h.Ops[i].SentNS, h.Ops[i].ReceivedNS = int64(1000+20*i), int64(1010+20*i)
	}
}

func TestRefusingNearlyEverybodyForNoReasonIsWrong(t *testing.T) {
	t.Parallel()
	turnedAway := func(served bool, problem string) *history.History {
		h := simulate(plenty(61))
		at := h.End.EndedNS + 1
		if served { // the last buyer is served while the others wait
			last := &h.Ops[slices.Max(sales(h))]
			last.GoodsID, at = 1, last.ReceivedNS-50
		}
		turnAway(h, len(h.Ops)+1, at)
		for i := range h.Ops {
			if h.Ops[i].Outcome == history.Busy {
				h.Ops[i].Error = problem
			}
		}
		return h
	}
	for name, test := range map[string]struct {
		h    *history.History
		want verify.Result
	}{
		"while nobody was served":     {turnedAway(false, history.BusyProblem), verify.Wrong},
		"while another was served":    {turnedAway(true, history.BusyProblem), verify.Inconclusive},
		"because a server was broken": {turnedAway(false, "/problems/unavailable"), verify.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, test.h, test.want, "turned away as busy while stock was left")
		})
	}
}

// A fence refuses a holder who read the stock before a restock, so one more buyer may be turned away for each restock.
func TestARestockMayTurnOneBuyerAway(t *testing.T) {
	t.Parallel()
	for extra, want := range map[int]verify.Result{0: verify.Correct, 1: verify.Inconclusive} {
		s := plenty(49)
		s.restocks = 0.1
		h := simulate(s)
		requests, n := len(sales(h)), 0
		restocks := len(h.Ops) - requests
		// The added requests count, too, and of all requests one in twenty may be turned away anyway.
		for 20*(n-restocks) < requests+n-19+20*extra {
			n++
		}
		turnAway(h, n, h.End.EndedNS/2)
		if v := verify.Judge(h); v.Result != want || v.TurnedAway != int64(n) {
			t.Errorf("%d turned away, %d restocks, %d requests: %s, want %s: %v",
				v.TurnedAway, restocks, v.Requests, v.Result, want, v.Evidence)
		}
	}
}

func TestGoodCountsOnlyUnitsReallyTakenFromStock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ initial, final, want int64 }{ // of 400 sales
		"correct":      {1000, 600, 400},
		"lost updates": {1000, 700, 300},
		"oversold":     {300, -100, 300},
		"baseline":     {1000, 1000, 0},
		"stock grew":   {1000, 1100, 0},
	} {
		h := simulate(plenty(45))
		h.Run.Initial[1], h.End.Final[1] = c.initial, c.final
		if got := verify.Judge(h).Good; got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// A sale that leaves a negative stock sold units that were not there, whatever is put back later.
func TestUnitsSoldBeforeTheyWerePutBackAreOversold(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(50))
	h.Run.Claim, h.Run.Set[1], h.Run.Initial[1] = verify.ClaimOversells, 15, 15
	for i := range h.Ops {
		h.Ops[i].Remaining += 15 - 1000
	}
	h.Ops = append(h.Ops, history.Op{
		Kind: history.Restock, Name: "back", GoodsID: 1, Count: 1000, SentNS: h.End.EndedNS + 1,
		ReceivedNS: h.End.EndedNS + 2, Outcome: history.Sold, Remaining: 615,
	})
	h.End.Final[1] = 615
	v := verify.Judge(h)
	if v.Result != verify.Wrong || v.Oversold != 385 || v.Good != 15 || v.Covered != 15 || v.LostUpdates+v.Leaked != 0 {
		t.Errorf("%+v, want 385 units oversold of 400", v)
	}
	if !verify.Held(h.Run, v) {
		t.Errorf("an oversell does not hold the claim to oversell: %v", v.Evidence)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	correct := verify.Verdict{Result: verify.Correct}
	lost := verify.Verdict{Result: verify.Wrong, Figures: verify.Figures{LostUpdates: 1}}
	oversold := verify.Verdict{Result: verify.Wrong, Figures: verify.Figures{Oversold: 1}, DemandExceeded: true}
	refused := verify.Verdict{Result: verify.Correct, DemandExceeded: true}
	undersold := verify.Verdict{Result: verify.Wrong, Figures: verify.Figures{Undersold: 1}, DemandExceeded: true}
	nothing := verify.Verdict{Result: verify.Inconclusive, Figures: verify.Figures{LostUpdates: 1}}
	for _, c := range []struct {
		claim   string // and the counts, after a space
		verdict verify.Verdict
		want    bool
	}{
		{"correct", correct, true},
		{"correct", lost, false},
		{"correct", nothing, false},
		{"loses-updates", lost, true},
		{"loses-updates", correct, false},
		{"loses-updates", oversold, false},
		{"loses-updates", nothing, false},
		{"oversells", oversold, true},
		{"oversells", correct, true}, // the demand did not exceed the stock
		{"oversells", refused, false},
		{"oversells", lost, false},
		{"undersells", undersold, true},
		{"undersells 1-8", undersold, true},
		{"undersells 1-8", correct, true}, // the demand did not exceed the stock
		{"undersells", refused, true},     // all wanted the same number of units
		{"undersells 8-8", refused, true},
		{"undersells 1-8", refused, false},
		{"undersells", oversold, false},
		{"undersells", nothing, false},
		{"sells-nothing", correct, true},
		{"sells-nothing", lost, false},
		{"sells-nothing", nothing, false},
		{"no-such-claim", correct, false},
	} {
		var run history.Run
		run.Claim, run.Counts, _ = strings.Cut(c.claim, " ")
		if got := verify.Held(run, c.verdict); got != c.want {
			t.Errorf("claim %q, verdict %+v: held is %t, want %t", c.claim, c.verdict, got, c.want)
		}
	}
}

func TestMergeIsWrongIfOneRoundIs(t *testing.T) {
	t.Parallel()
	clean := verify.Judge(simulate(plenty(46)))
	h := simulate(plenty(47))
	neverHappened(h, 200)
	wrong := verify.Judge(h)
	h = simulate(plenty(48))
	h.End = nil
	cut := verify.Judge(h)

	m := verify.Merge(clean, wrong, cut)
	if want := (figures{result: verify.Wrong, lost: 1, linearizable: "false"}); of(m) != want {
		t.Errorf("got %+v, want %+v", of(m), want)
	}
	if m.Requests != 1200 || m.Initial != 3000 || m.Outcomes[history.Sold] != 1200 {
		t.Errorf("the figures are not summed: %+v", m)
	}
	if len(m.Evidence) == 0 || !strings.HasPrefix(m.Evidence[0], "round 2: ") {
		t.Errorf("the evidence does not name its round: %q", m.Evidence)
	}
	if m := verify.Merge(clean, cut); m.Result != verify.Inconclusive || m.Linearizable != nil {
		t.Errorf("got %+v, want inconclusive", of(m))
	}
	if m := verify.Merge(); m.Result != verify.Inconclusive {
		t.Errorf("no rounds are %s, want inconclusive", m.Result)
	}
}

// The stock after a restock is counted while others sell if the strategy cannot say what remains.
func TestARestockIsNotHeldToItsEstimate(t *testing.T) {
	t.Parallel()
	for omits, want := range map[bool]verify.Result{true: verify.Correct, false: verify.Wrong} {
		at := int64(0)
		op := func(kind string, count int, outcome history.Outcome, remaining int64) history.Op {
			at += 10
			return history.Op{
				Kind: kind, Name: fmt.Sprint(at), GoodsID: 1, Count: int64(count), SentNS: at, ReceivedNS: at + 5,
				Outcome: outcome, Remaining: remaining, OmitsRemaining: omits && kind == history.Deduct,
			}
		}
		h := &history.History{
			Run: history.Run{
				Scenario: "restock", OmitsRemaining: omits, Set: map[int64]int64{1: 2}, Initial: map[int64]int64{1: 2},
				Claim: verify.ClaimCorrect,
			},
			Ops: []history.Op{
				op(history.Deduct, 2, history.Sold, 0), op(history.Deduct, 1, history.SoldOut, 0),
				op(history.Restock, 1, history.Sold, 3),
			},
			End: &history.End{StartedNS: 1, EndedNS: 100, Final: map[int64]int64{1: 1}},
		}
		h.Ops[2].SentNS = 1
		slices.SortFunc(h.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
		if v := verify.Judge(h); v.Result != want {
			t.Errorf("omits %v: %s, want %s: %q", omits, v.Result, want, v.Evidence)
		}
	}
}
