package traffic

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"stock/loadtest/internal/history"
)

// reply has the members of every reply: of receipts, reservations, cancelled sales, restocks and problems.
type reply struct {
	Type      string         `json:"type"` // of a problem
	ID        string         `json:"id"`
	Key       string         `json:"key"`
	State     string         `json:"state"`
	GoodsID   int64          `json:"goods_id"` // of a problem with an order: the item because of which it was refused
	Count     int64          `json:"count"`
	Remaining *int64         `json:"remaining"`
	Stock     *int64         `json:"stock"`
	Token     uint64         `json:"token"`
	Attempts  int            `json:"attempts"`
	WaitedUS  int64          `json:"waited_us"`
	HeldUS    int64          `json:"held_us"`
	EnteredNS int64          `json:"entered_ns"`
	LeftNS    int64          `json:"left_ns"`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt time.Time      `json:"expires_at"`
	EndedAt   time.Time      `json:"ended_at"`
	Lines     jsontext.Value `json:"lines"` // of a problem: numbers, which are not read
}

// replyLine is a line of the receipt of an order, or of a sale that was cancelled.
type replyLine struct {
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining *int64 `json:"remaining"`
	Token     uint64 `json:"token"`
	Cancelled int64  `json:"cancelled"`
	GivenBack int64  `json:"given_back"`
}

// read records the answer to a request. One that is unreadable or for something else confirms nothing, and promises
// nothing either.
func (r *reply) read(op *history.Op, response *fasthttp.Response) {
	op.Replayed = string(response.Header.Peek("Idempotency-Replayed")) == "true"
	*r = reply{}
	if json.Unmarshal(response.Body(), r) != nil {
		*r = reply{} // not even what it begins with
	}
	if op.Status == http.StatusOK || op.Status == http.StatusCreated {
		if !r.confirms(op) {
			op.Outcome, op.Error = history.Unknown, history.Mismatch
		}
		return
	}
	op.Outcome, op.Error = r.refuses(op), r.Type
	if op.Error == "" {
		op.Error = http.StatusText(op.Status)
	}
}

// confirms records what a reply confirms. It returns false if that is not what was asked for.
func (r *reply) confirms(op *history.Op) bool {
	switch op.Kind {
	case history.Deduct:
		if r.GoodsID != op.GoodsID || r.Count != op.Count {
			return false
		}
		op.Remaining, op.OmitsRemaining = valueOf(r.Remaining)
		op.Token = r.Token
	case history.Order:
		if !r.confirmsLines(op) {
			return false
		}
	case history.Restock:
		op.Outcome = history.Sold
		op.Remaining, _ = valueOf(r.Stock)
		return r.Stock != nil
	case history.CancelSale:
		return r.confirmsCancellation(op)
	default:
		return r.confirmsReservation(op)
	}
	op.Outcome = history.Sold
	op.Attempts, op.WaitedUS, op.HeldUS = r.Attempts, r.WaitedUS, r.HeldUS
	op.EnteredNS, op.LeftNS = r.EnteredNS, r.LeftNS
	return true
}

func valueOf(number *int64) (value int64, omitted bool) {
	if number == nil {
		return 0, true
	}
	return *number, false
}

// confirmsLines records the receipt of an order, whose lines may be in any order.
func (r *reply) confirmsLines(op *history.Op) bool {
	var confirmed []replyLine
	if json.Unmarshal(r.Lines, &confirmed) != nil || len(confirmed) != len(op.Lines) {
		return false
	}
	lines, known := slices.Clone(op.Lines), map[int64]bool{} // they may be in flight a second time
	for _, line := range confirmed {
		i := lineOf(op, line.GoodsID)
		if i < 0 || line.Count != op.Lines[i].Count || known[line.GoodsID] {
			return false
		}
		known[line.GoodsID] = true
		lines[i].Token = line.Token
		lines[i].Remaining, lines[i].OmitsRemaining = valueOf(line.Remaining)
	}
	op.Lines = lines
	return true
}

// lineOf returns the index of the order's line for an item, or -1.
func lineOf(op *history.Op, goodsID int64) int {
	return slices.IndexFunc(op.Lines, func(line history.Line) bool { return line.GoodsID == goodsID })
}

func (r *reply) confirmsCancellation(op *history.Op) bool {
	var lines []replyLine // none if nothing was sold
	if len(r.Lines) > 0 && json.Unmarshal(r.Lines, &lines) != nil {
		return false
	}
	if r.Key != op.Name || len(lines) > 1 || len(lines) == 1 && lines[0].GoodsID != op.GoodsID {
		return false
	}
	op.Outcome, op.State = history.Done, r.State
	for _, line := range lines {
		op.Sold, op.Cancelled, op.GivenBack = line.Count, line.Cancelled, line.GivenBack
	}
	return true
}

var reservationStates = []string{history.Held, history.Confirmed, history.Cancelled, history.Expired}

func (r *reply) confirmsReservation(op *history.Op) bool {
	sameID := op.Kind == history.Hold || r.ID == op.Reservation
	if r.ID == "" || !sameID || r.GoodsID != op.GoodsID || r.Count != op.Count || r.CreatedAt.IsZero() ||
		r.ExpiresAt.IsZero() || !slices.Contains(reservationStates, r.State) {
		return false
	}
	op.Outcome, op.Reservation, op.State = history.Done, r.ID, r.State
	op.Remaining, _ = valueOf(r.Remaining)
	op.CreatedUS, op.ExpiresUS = r.CreatedAt.UnixMicro(), r.ExpiresAt.UnixMicro()
	if !r.EndedAt.IsZero() {
		op.EndedUS = r.EndedAt.UnixMicro()
	}
	return true
}

// Problem types, and the statuses with which they promise that nothing was done. Any other 5xx may come from a proxy
// that gave up on a replica that went on, so it promises nothing.
const problemSoldOut = "/problems/sold-out"

var refusals = map[string]struct {
	status  int
	outcome history.Outcome
}{
	problemSoldOut:               {http.StatusConflict, history.SoldOut},
	history.ProblemSaleCancelled: {http.StatusConflict, history.Withdrawn},
	// The first request with the key may still deduct, but this one has not.
	"/problems/in-progress":    {http.StatusConflict, history.Busy},
	history.BusyProblem:        {http.StatusServiceUnavailable, history.Busy},
	"/problems/unavailable":    {http.StatusServiceUnavailable, history.Busy},
	history.ProblemExpired:     {http.StatusConflict, history.Refused},
	history.ProblemCancelled:   {http.StatusConflict, history.Refused},
	history.ProblemConfirmed:   {http.StatusConflict, history.Refused},
	history.ProblemUnknownHold: {http.StatusNotFound, history.Refused},

	history.ProblemMoreThanSold: {http.StatusUnprocessableEntity, history.Refused},
	history.ProblemUnknownSale:  {http.StatusNotFound, history.Refused},
}

// refuses returns the outcome of a request that did not succeed, and records what the reply tells of it.
func (r *reply) refuses(op *history.Op) history.Outcome {
	refusal := refusals[r.Type]
	told := true
	switch {
	case refusal.status != op.Status, refusal.outcome == history.Refused && op.Sells(): // not an answer to a sale
		told = false
	case refusal.outcome == history.SoldOut && op.Kind == history.Order && r.Remaining != nil:
		i := lineOf(op, r.GoodsID)
		if i < 0 { // it is about another order
			r.Type = history.Mismatch
			return history.Unknown
		}
		op.Lines = slices.Clone(op.Lines)
		op.Lines[i].Short, op.Lines[i].Remaining = true, *r.Remaining
	case refusal.outcome == history.SoldOut:
		told = r.Remaining != nil
		op.Remaining, _ = valueOf(r.Remaining)
	}
	switch {
	case told:
		return refusal.outcome
	case op.Status/100 == 4:
		return history.Rejected
	}
	return history.Unknown
}
