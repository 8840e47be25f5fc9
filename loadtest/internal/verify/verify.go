// Package verify is the judge: from the stock before a run, the stock after it, and what every client was told, it
// says whether the service kept its books.
//
// The judge knows neither the service nor the load. Its first proof is arithmetic: what was there, less what was sold, must be
// what is left. Where the arithmetic is silent, porcupine decides whether any order of the requests explains the answers.
//
//	v := verify.Judge(h)             // one recorded run
//	ok := verify.Held(h.Run, v)      // against what the strategy promised
//	row := verify.Merge(v1, v2, v3)  // the rounds of one strategy
package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"stock/loadtest/internal/history"
)

// Result is the judge's word on a run.
type Result string

// The results.
const (
	Correct      Result = "correct"
	Wrong        Result = "wrong"
	Inconclusive Result = "inconclusive"
)

// A run below these thresholds cannot clear a strategy. It can still convict one.
const (
	// MinAnswered is the least number of requests that ended as sold or sold out.
	MinAnswered = 100
	// MaxUnknown is the largest share of requests whose outcome may be unknown.
	MaxUnknown = 0.05
	// MaxBusy is the largest share of requests that may be turned away busy while stock was left for them, beside one a restock.
	MaxBusy = 0.05
	// MinContended is the least number of requests that were sent while another one for the same goods was in flight: the
	// occasions for a race. One that shows on every seventh occasion is missed by twenty in fewer than one run of twenty.
	// It is a number and not a share, as a long run at a low rate has occasions enough, too.
	MinContended = 20
)

// Promises that Held knows, as the service words them.
const (
	PromiseCorrect      = "correct"
	PromiseLosesUpdates = "loses-updates"
	PromiseOversells    = "oversells"
	PromiseSellsNothing = "sells-nothing"
)

// Verdict is the result with the figures that it rests on. Figures are found goods by goods and then summed, so that
// one goods never makes up for another.
type Verdict struct {
	Result   Result                  `json:"verdict"`
	Requests int                     `json:"requests"` // deductions asked for
	Outcomes map[history.Outcome]int `json:"outcomes"` // requests by outcome

	// Units.
	Initial      int64 `json:"initial"`       // in stock before the run
	Final        int64 `json:"final"`         // in stock after it
	Sold         int64 `json:"sold"`          // confirmed to a buyer
	UnknownUnits int64 `json:"unknown_units"` // asked for with an unknown outcome
	Restocked    int64 `json:"restocked"`     // confirmed as put back
	Covered      int64 `json:"covered"`       // confirmed, as far as there was stock for it
	Good         int64 `json:"good"`          // confirmed, and really gone from a stock that was there
	LostUpdates  int64 `json:"lost_updates"`  // confirmed sold, but still in stock
	Oversold     int64 `json:"oversold"`      // confirmed sold beyond what was there, though more may have been put back later
	Leaked       int64 `json:"leaked"`        // gone beyond all that was sold or may have been

	Undersold  int64 `json:"undersold"`              // requests refused while stock was certainly left for them
	TurnedAway int64 `json:"turned_away"`            // requests turned away busy while stock was certainly left for them
	Contended  int64 `json:"contended"`              // requests sent while another one for the same goods was in flight
	Duplicates int64 `json:"duplicates"`             // orders that were deducted more than once, at least
	Replays    int64 `json:"replays,omitempty"`      // orders that were sent again and got their first answer again
	LedgerGaps int64 `json:"ledger_gaps,omitempty"`  // orders, or units of goods, of which the ledger does not tell what their buyers were told
	Unlike     int64 `json:"unlike_first,omitempty"` // orders that were sent again and got another answer than the first
	Overlaps   int64 `json:"overlaps"`               // pairs of critical sections of one goods that overlap in time

	// Linearizable is nil where the checker ran out of time or of room, or the run was interrupted.
	Linearizable *bool `json:"linearizable"`

	// Uncontended says that the run is inconclusive for one reason alone: its requests hardly met each other.
	Uncontended bool `json:"uncontended,omitempty"`
	// DemandExceeded says that buyers who were answered asked for more units of some goods than there were.
	DemandExceeded bool `json:"demand_exceeded"`
	// Untouched says that every goods has its initial stock after the run.
	Untouched bool `json:"untouched"`

	// Evidence holds one short sentence a finding: first what convicts, then what keeps the judge from clearing, then remarks.
	Evidence []string `json:"evidence"`
}

// examples is how many concrete requests a finding names.
const examples = 3

// Judge judges one recorded run.
//
// It is WRONG where any unit was lost, oversold or leaked, a buyer was falsely refused, an order was deducted twice, no
// order of the requests explains the answers, an order that was sent again got another answer, the ledger does not tell what
// the buyers were told, or critical sections overlapped that were promised not to. Otherwise it is
// INCONCLUSIVE where the run was interrupted, where the load was too small (MinAnswered, MinContended, fewer replicas than
// there are, a scarce stock that never ran out), or where too many buyers got no answer to the point (MaxUnknown, MaxBusy,
// any request that was rejected, or sales that did not tell what remains, by a strategy that does not say so beforehand).
// Otherwise it is CORRECT.
//
// The baseline promises to sell nothing. It is CORRECT where the stock is untouched and MinAnswered sales were confirmed:
// the rules above are for those who sell.
func Judge(h *history.History) Verdict {
	v := Verdict{Outcomes: map[history.Outcome]int{}, Untouched: h.End != nil}
	books := openBooks(h)
	for _, op := range h.Ops {
		if op.Kind == history.Deduct && !op.Again {
			v.Requests++
			v.Outcomes[op.Outcome]++
		}
	}

	var wrong, notes findings
	for _, b := range books {
		b.balance(&v, &wrong)
		v.Contended += int64(b.contended())
	}
	if h.Run.Promise == PromiseSellsNothing {
		judgeBaseline(&v, &wrong, &notes)
	} else {
		judgeSales(h.Run, books, &v, &wrong, &notes)
	}
	doubts := doubt(h, v, books)
	if calm := uncontended(h.Run, v); len(calm) > 0 {
		v.Uncontended = len(wrong) == 0 && len(doubts) == 0
		doubts = append(doubts, calm...)
	}

	switch {
	case len(wrong) > 0:
		v.Result = Wrong
	case len(doubts) > 0:
		v.Result = Inconclusive
	default:
		v.Result = Correct
	}
	if h.Run.Witness == "service" {
		notes.add("the service was its own witness: nobody else read its stock")
	}
	v.Evidence = slices.Concat(findings{}, wrong, doubts, notes)
	return v
}

// judgeSales judges what the books alone do not tell of a strategy that sells.
func judgeSales(run history.Run, books []*books, v *Verdict, wrong, notes *findings) {
	foreign := map[string]bool{}
	for _, b := range books {
		b.foreign(foreign)
	}
	for _, replica := range slices.Sorted(maps.Keys(foreign)) {
		notes.add("replica %s: its clock is not the lab's, as its critical sections lie outside their own requests: overlaps with them are not counted",
			cmp.Or(replica, "without a name"))
	}
	linearizable := yes
	for _, b := range books {
		if !b.read {
			linearizable = undecided
		}
		b.undersold(v, wrong)
		b.duplicates(v, wrong)
		var overlapped findings
		b.overlaps(v, foreign, &overlapped)
		b.replays(v, wrong)
		if run.Ledger {
			b.audit(v, wrong)
		}
		if run.Exclusive {
			*wrong = append(*wrong, overlapped...)
		}
	}
	// The arithmetic of one goods settles it for the whole run: the checker only has to decide what is left open.
	if v.LostUpdates > 0 || v.Oversold > 0 || v.Leaked > 0 || v.Undersold > 0 {
		linearizable = no
	}
	for _, b := range books {
		linearizable = worse(linearizable, b.sameAnswer(wrong))
	}
	if linearizable == yes {
		linearizable = linearize(books, wrong, notes)
	}
	v.Linearizable = linearizable.pointer()
}

// judgeBaseline judges the baseline: it has to confirm sales, and balance has seen whether it made any.
func judgeBaseline(v *Verdict, wrong, notes *findings) {
	if confirmed := v.Outcomes[history.Sold]; v.answered() >= MinAnswered && confirmed < MinAnswered {
		wrong.add("only %d of %d requests were confirmed, fewer than %d", confirmed, v.Requests, MinAnswered)
	}
	if v.Untouched {
		notes.add("sells nothing: %d units were confirmed, and the stock is untouched", v.Sold)
	}
}

// doubt lists what keeps a run from clearing anybody.
func doubt(h *history.History, v Verdict, books []*books) (doubts findings) {
	if h.End == nil {
		doubts.add("the run was interrupted: nobody read the stock that it left")
	}
	if h.Run.Ledger && h.End != nil && !h.End.LedgerRead {
		doubts.add("nobody read the ledger that the run left")
	}
	for _, b := range books {
		if h.End != nil && !b.read {
			doubts.add("goods %d: nobody read the stock that the run left", b.id)
		}
	}
	backwards, untold, restocks := 0, 0, 0
	replicas := map[string]bool{}
	var rejected *history.Op
	for i, op := range h.Ops {
		if op.Kind == history.Restock {
			restocks++
		}
		if op.Again || op.Kind != history.Deduct && op.Outcome != history.Rejected {
			continue
		}
		switch op.Outcome {
		case history.Sold, history.SoldOut:
			if op.Replica != "" {
				replicas[op.Replica] = true
			}
		case history.Rejected:
			if rejected == nil {
				rejected = &h.Ops[i]
			}
		}
		if op.Outcome != history.Unknown && op.ReceivedNS < op.SentNS {
			backwards++
		}
		if op.Untold {
			untold++
		}
	}
	if answered := v.answered(); answered < MinAnswered {
		doubts.add("only %d requests were answered, fewer than %d: too little load", answered, MinAnswered)
	} else if len(replicas) < h.Run.Replicas {
		doubts.add("only %d of %d replicas answered: the others were not put to the test", len(replicas), h.Run.Replicas)
	}
	if h.Run.Scarce && !v.DemandExceeded {
		doubts.add("demand never exceeded the stock, though it was meant to: nobody could be sold what was not there")
	}
	if unknown := v.Outcomes[history.Unknown]; float64(unknown) > MaxUnknown*float64(v.Requests) {
		doubts.add("the outcome of %d of %d requests is unknown, more than %.0f %%", unknown, v.Requests, 100*MaxUnknown)
	}
	// A restock costs one buyer his sale at most: a fence refuses the holder who had read the stock before.
	if float64(v.TurnedAway-int64(restocks)) > MaxBusy*float64(v.Requests) {
		doubts.add("%d of %d buyers were turned away busy while stock was left, more than %.0f %%", v.TurnedAway, v.Requests, 100*MaxBusy)
	}
	if rejected != nil {
		doubts.add("%d of %d requests were rejected, such as %s (%d %s): the lab asked for something wrong",
			v.Outcomes[history.Rejected], v.Requests, name(*rejected), rejected.Status, rejected.Error)
	}
	if untold > 0 && !h.Run.Untold {
		doubts.add("%d sales did not tell what remains, which the strategy should: they cannot be checked against each other", untold)
	}
	if backwards > 0 {
		doubts.add("%d replies were received before they were asked for: the clocks cannot be trusted", backwards)
	}
	return doubts
}

// uncontended says where there was hardly an occasion for a race. There is none in doing nothing.
func uncontended(run history.Run, v Verdict) (doubts findings) {
	if v.Contended < MinContended && run.Promise != PromiseSellsNothing {
		doubts.add("only %d requests were sent while another one for the same goods was in flight, fewer than %d: hardly anything was put to the test",
			v.Contended, MinContended)
	}
	return doubts
}

// answered is the number of requests that were answered to the point.
func (v *Verdict) answered() int { return v.Outcomes[history.Sold] + v.Outcomes[history.SoldOut] }

// Held says whether a verdict, of one round or merged from several, is what the strategy promised. An inconclusive
// verdict holds no promise.
func Held(run history.Run, v Verdict) bool {
	if v.Result == Inconclusive {
		return false
	}
	switch run.Promise {
	case PromiseCorrect, PromiseSellsNothing:
		return v.Result == Correct
	case PromiseLosesUpdates:
		// A sale that is overwritten stays in stock, a restock that is overwritten leaks.
		return v.Result == Wrong && (v.LostUpdates > 0 || v.Leaked > 0 && v.Restocked > 0)
	case PromiseOversells:
		// Without a check, the arithmetic is right for as long as nobody asks for more than there is.
		return v.Result == Wrong && v.Oversold > 0 || v.Result == Correct && !v.DemandExceeded
	}
	return false
}

// Merge sums the verdicts of several rounds of one strategy under one workload. One wrong round is enough to convict, and
// one inconclusive round is enough not to clear.
func Merge(rounds ...Verdict) Verdict {
	m := Verdict{Result: Correct, Outcomes: map[history.Outcome]int{}, Untouched: true, Evidence: []string{}}
	linearizable, otherDoubts := yes, false
	for i, v := range rounds {
		switch {
		case v.Result == Wrong:
			m.Result = Wrong
		case v.Result == Inconclusive && m.Result == Correct:
			m.Result = Inconclusive
		}
		otherDoubts = otherDoubts || v.Result == Inconclusive && !v.Uncontended
		m.Requests += v.Requests
		for outcome, n := range v.Outcomes {
			m.Outcomes[outcome] += n
		}
		m.Initial += v.Initial
		m.Final += v.Final
		m.Sold += v.Sold
		m.UnknownUnits += v.UnknownUnits
		m.Restocked += v.Restocked
		m.Covered += v.Covered
		m.Good += v.Good
		m.LostUpdates += v.LostUpdates
		m.Oversold += v.Oversold
		m.Leaked += v.Leaked
		m.Undersold += v.Undersold
		m.Duplicates += v.Duplicates
		m.Overlaps += v.Overlaps
		m.Replays += v.Replays
		m.LedgerGaps += v.LedgerGaps
		m.Unlike += v.Unlike
		m.TurnedAway += v.TurnedAway
		m.Contended += v.Contended
		m.DemandExceeded = m.DemandExceeded || v.DemandExceeded
		m.Untouched = m.Untouched && v.Untouched
		switch {
		case v.Linearizable == nil:
			linearizable = worse(linearizable, undecided)
		case !*v.Linearizable:
			linearizable = no
		}
		for _, e := range v.Evidence {
			if len(rounds) > 1 {
				e = fmt.Sprintf("round %d: %s", i+1, e)
			}
			m.Evidence = append(m.Evidence, e)
		}
	}
	if len(rounds) == 0 {
		m.Result, linearizable = Inconclusive, undecided
	}
	m.Linearizable = linearizable.pointer()
	m.Uncontended = m.Result == Inconclusive && len(rounds) > 0 && !otherDoubts
	return m
}

// findings are sentences of evidence.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// answer is the checker's: in the order of how bad it is.
type answer int

const (
	yes answer = iota
	undecided
	no
)

func worse(a, b answer) answer { return max(a, b) }

func (a answer) pointer() *bool {
	if a == undecided {
		return nil
	}
	held := a == yes
	return &held
}

// name is how evidence speaks of a request.
func name(op history.Op) string {
	switch {
	case op.RequestID != "":
		return op.RequestID
	case op.Order != "":
		return "of order " + op.Order
	}
	return fmt.Sprintf("of client %d", op.Client)
}

// sorted returns the keys of m in ascending order: evidence reads the same every time.
func sorted[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }
