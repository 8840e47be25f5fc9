package traffic

import (
	"encoding/json"
	"math"
	"net/http"

	"stock/loadtest/internal/history"
)

// Problem types of the service that promise that nothing was deducted. Any other 5xx may come from a proxy that gave up on
// a replica which went on, so it promises nothing.
const (
	problemSoldOut     = "/problems/sold-out"
	problemBusy        = "/problems/busy"
	problemUnavailable = "/problems/unavailable"
	problemInProgress  = "/problems/in-progress" // the first request with the key may still deduct, this one has not
)

// untold marks a reply without `remaining`: an absent member and a zero are different things to the judge.
const untold = math.MinInt64

// reply holds the members of a receipt and of a problem, so that a body is decoded once, whichever it is.
type reply struct {
	Type      string `json:"type"`
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Attempts  int    `json:"attempts"`
	Token     uint64 `json:"token"`
	WaitedUS  int64  `json:"waited_us"`
	HeldUS    int64  `json:"held_us"`
	EnteredNS int64  `json:"entered_ns"`
	LeftNS    int64  `json:"left_ns"`
}

// classify fills in what a client learned from a whole reply.
func classify(op *history.Op, status int, header http.Header, body []byte) {
	op.Status = status
	op.Replica = first(header, "X-Replica")
	op.RequestID = first(header, "X-Request-Id")
	op.Replayed = first(header, "Idempotency-Replayed") == "true"

	told := reply{Remaining: untold}
	malformed := json.Unmarshal(body, &told) != nil
	op.Error = told.Type

	switch {
	case status == http.StatusOK:
		// A receipt that cannot be read, or for another order, confirms nothing.
		if malformed || told.GoodsID != op.GoodsID || told.Count != op.Count {
			op.Outcome, op.Error = history.Unknown, "the receipt does not match the order"
			return
		}
		op.Outcome = history.Sold
		if op.Untold = told.Remaining == untold; !op.Untold {
			op.Remaining = told.Remaining
		}
		op.Attempts = told.Attempts
		op.Token = told.Token
		op.WaitedUS, op.HeldUS = told.WaitedUS, told.HeldUS
		op.EnteredNS, op.LeftNS = told.EnteredNS, told.LeftNS
	case status == http.StatusConflict && told.Type == problemSoldOut && told.Remaining != untold:
		op.Outcome, op.Remaining = history.SoldOut, told.Remaining
	case status == http.StatusServiceUnavailable && (told.Type == problemBusy || told.Type == problemUnavailable):
		op.Outcome = history.Busy
	case status == http.StatusConflict && told.Type == problemInProgress:
		op.Outcome = history.Busy
	case status >= 400 && status < 500:
		op.Outcome = history.Rejected
	default:
		op.Outcome = history.Unknown
	}
	if op.Outcome != history.Sold && op.Error == "" {
		op.Error = http.StatusText(status)
	}
}

// first spares http.Header.Get its canonicalisation: the name is canonical already.
func first(header http.Header, canonical string) string {
	if values := header[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}
