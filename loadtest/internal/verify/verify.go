// Package verify is the judge. From what was set, what was in stock before and after a run, what every client was told,
// and the ledger if there is one, it decides whether the service sold correctly.
//
// The judge knows neither the service nor the load. Its first proof is arithmetic: the initial stock less the units
// sold must be the final stock. Where the arithmetic proves nothing, porcupine decides whether some sequence of the
// requests explains the answers.
//
//	v := verify.Judge(h)             // one recorded run
//	ok := verify.Held(h.Run, v)      // against the claim of the strategy
//	row := verify.Merge(v1, v2, v3)  // the rounds of one strategy
package verify

import (
	"slices"

	"stock/loadtest/internal/history"
)

// Result is the judge's decision about a run.
type Result string

// The results.
const (
	Correct      Result = "correct"
	Wrong        Result = "wrong"
	Inconclusive Result = "inconclusive"
)

// A run below these thresholds cannot clear a strategy, but it can convict one.
const (
	// MinAnswered is the least number of requests that must be answered sold or sold out.
	MinAnswered = 100
	// MaxUnknown is the largest share of requests whose outcome may be unknown.
	MaxUnknown = 0.05
	// MaxBusy is the largest share of requests that may be answered busy although stock was left for them. One more is
	// allowed for each restock.
	MaxBusy = 0.05
	// MaxIdle is the largest share of requests that may be answered busy although stock was left for them, and although
	// nobody else was served meanwhile. More of them convict.
	MaxIdle = 0.5
	// MinContended is the least number of requests that must be sent while another one for the same item is in flight.
	// If every seventh of them raced, 20 would miss the race in fewer than one run of 20. It is not a share: a long run
	// at a low rate also has enough.
	MinContended = 20
)

// Claims that Held knows, as the service spells them.
const (
	ClaimCorrect      = "correct"
	ClaimLosesUpdates = "loses-updates"
	ClaimOversells    = "oversells"
	ClaimUndersells   = "undersells"
	ClaimSellsNothing = "sells-nothing"
)

// Verdict is the result with the figures that it rests on.
type Verdict struct {
	Result   Result                  `json:"verdict"`
	Requests int                     `json:"requests"` // deductions, orders and holds, without those sent again
	Outcomes map[history.Outcome]int `json:"outcomes"` // the same by outcome

	Figures

	// Linearizable is nil if the checker ran out of time or memory, or the run was interrupted.
	Linearizable *bool `json:"linearizable"`

	// Uncontended reports that the run is inconclusive only because too few requests were in flight at the same time.
	Uncontended bool `json:"uncontended,omitempty"`
	// DemandExceeded reports that buyers who were answered asked for more units of some item than there were.
	DemandExceeded bool `json:"demand_exceeded"`

	// Evidence holds one short sentence for each finding: first those that convict, then those that prevent clearing,
	// then remarks.
	Evidence []string `json:"evidence"`
}

// Figures are counted for each item and then summed, so that one item never compensates for another.
type Figures struct {
	// Units.
	Initial      int64 `json:"initial"`       // in stock before the run
	Final        int64 `json:"final"`         // in stock after it
	Sold         int64 `json:"sold"`          // confirmed to a buyer
	UnknownUnits int64 `json:"unknown_units"` // asked for with an unknown outcome
	Restocked    int64 `json:"restocked"`     // confirmed as put back
	Covered      int64 `json:"covered"`       // confirmed, as far as there was stock for them
	Good         int64 `json:"good"`          // confirmed, and really taken from a stock that was there
	LostUpdates  int64 `json:"lost_updates"`  // confirmed, but still in stock
	Oversold     int64 `json:"oversold"`      // confirmed beyond the stock at that time, even if more was put back later
	Leaked       int64 `json:"leaked"`        // gone beyond all that was sold or may have been

	SetWrong   int64 `json:"set_wrong,omitempty"`   // units in stock before the run more or less than were set
	Undersold  int64 `json:"undersold"`             // requests refused although stock was certainly left for them
	TurnedAway int64 `json:"turned_away"`           // requests answered busy although stock was certainly left
	Contended  int64 `json:"contended"`             // requests sent while another for the same item was in flight
	Duplicates int64 `json:"duplicates"`            // a lower bound on the deductions that were made more than once
	LedgerGaps int64 `json:"ledger_gaps,omitempty"` // ledger rows that differ from the answers, and units missing
	Overlaps   int64 `json:"overlaps"`              // pairs of critical sections of one item that overlap in time

	PartialOrders  int64 `json:"partial_orders,omitempty"`  // orders that were deducted in part
	SentAgain      int64 `json:"sent_again,omitempty"`      // requests that were sent again
	AgainInStock   int64 `json:"again_in_stock,omitempty"`  // of these, while stock was certainly left
	AgainElsewhere int64 `json:"again_elsewhere,omitempty"` // of these, answered by another replica than before
	Replays        int64 `json:"replays,omitempty"`         // of these, those that got their first answer again
	// Of these, those that got another answer. The JSON name is that of older versions, whose reports must stay readable.
	DifferentAnswers int64 `json:"unlike_first,omitempty"`

	Reservations Reservations `json:"reservations,omitzero"`
}

// Reservations are the figures of a run of reservations.
type Reservations struct {
	Held      int64 `json:"held"`      // reservations that were granted
	Confirmed int64 `json:"confirmed"` // of these
	Cancelled int64 `json:"cancelled"` // of these
	Expired   int64 `json:"expired"`   // of these

	GhostUnits        int64 `json:"ghost_units"`        // gone at the end although nobody holds them or has bought them
	LateConfirmations int64 `json:"late_confirmations"` // made although nobody had asked for it in time
	EndedTwice        int64 `json:"ended_twice"`        // reservations of which clients were told different ends
	EndedEarly        int64 `json:"ended_early"`        // reservations that were called expired with time left
	WrongStates       int64 `json:"wrong_states"`       // reservations that were told to be in an impossible state
}

// counts returns the figures that are summed.
func (f *Figures) counts() []*int64 {
	r := &f.Reservations
	return []*int64{
		&f.Initial, &f.Final, &f.Sold, &f.UnknownUnits, &f.Restocked, &f.Covered, &f.Good, &f.LostUpdates, &f.Oversold,
		&f.Leaked, &f.SetWrong, &f.Undersold, &f.TurnedAway, &f.Contended, &f.Duplicates, &f.LedgerGaps, &f.Overlaps,
		&f.PartialOrders, &f.SentAgain, &f.AgainInStock, &f.AgainElsewhere,
		&f.Replays, &f.DifferentAnswers,
		&r.Held, &r.Confirmed, &r.Cancelled, &r.Expired, &r.GhostUnits, &r.LateConfirmations, &r.EndedTwice, &r.EndedEarly,
		&r.WrongStates,
	}
}

// Add adds the figures of another round, or of another strategy.
func (f *Figures) Add(g Figures) {
	sums := f.counts()
	for i, n := range g.counts() {
		*sums[i] += *n
	}
}

// Judge judges one recorded run by every check of the table in checks.go. It is Wrong if a check found what convicts,
// otherwise Inconclusive if a check found what prevents clearing, otherwise Correct. The evidence is in the order of
// the table, then by item.
func Judge(h *history.History) Verdict {
	b := openBooks(h)
	v := Verdict{
		Requests:       b.requests,
		Outcomes:       b.outcomes,
		DemandExceeded: b.demandExceeded(),
	}
	var wrong, doubts, remarks []string
	for _, c := range checks {
		if c.applies != nil && !c.applies(h.Run) {
			continue
		}
		r := c.look(b)
		v.Figures.Add(r.figures)
		if r.linearizable != nil {
			v.Linearizable = r.linearizable.pointer()
		}
		remarks = append(remarks, r.remarks...)
		switch {
		case c.weighs != nil && !c.weighs(h.Run):
		case c.means == Wrong:
			wrong = append(wrong, r.evidence()...)
		case c.means == Inconclusive:
			doubts = append(doubts, r.evidence()...)
		}
	}
	switch {
	case len(wrong) > 0:
		v.Result = Wrong
	case len(doubts) > 0:
		v.Result = Inconclusive
		v.Uncontended = len(doubts) == 1 && sells(h.Run) && v.Contended < MinContended
	default:
		v.Result = Correct
	}
	v.Evidence = slices.Concat([]string{}, wrong, doubts, remarks)
	return v
}

// Held reports whether a verdict, of one round or merged from several, is what the strategy claims. An inconclusive
// verdict holds no claim.
func Held(run history.Run, v Verdict) bool {
	if v.Result == Inconclusive {
		return false
	}
	switch run.Claim {
	case ClaimCorrect, ClaimSellsNothing:
		return v.Result == Correct
	case ClaimLosesUpdates:
		// The units of an overwritten sale stay in stock, those of an overwritten restock leak.
		return v.Result == Wrong && (v.LostUpdates > 0 || v.Leaked > 0 && v.Restocked > 0)
	case ClaimOversells:
		return v.Result == Wrong && v.Oversold > 0 || v.Result == Correct && !Provoked(run.Claim, run.Workload, v)
	case ClaimUndersells:
		return v.Result == Wrong && v.Undersold > 0 || v.Result == Correct && !Provoked(run.Claim, run.Workload, v)
	}
	return false
}

// Provoked reports whether a load could bring out what a strategy with a claim does wrong. Without a check, sales are
// right until somebody asks for more than there is. Where the units of a refused request are given back, one that asks
// for fewer must come meanwhile.
func Provoked(claim string, w history.Workload, v Verdict) bool {
	switch claim {
	case ClaimOversells:
		return v.DemandExceeded
	case ClaimUndersells:
		return v.DemandExceeded && w.UnequalCounts()
	}
	return true
}
