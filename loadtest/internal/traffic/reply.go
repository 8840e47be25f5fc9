package traffic

import (
	"encoding/json"
	"math"
	"net/http"

	"stock/loadtest/internal/history"
)

// Problem types of the service that promise that nothing was deducted. Any other 5xx may come from a proxy that gave
// up on a replica that went on, so it promises nothing.
const (
	problemSoldOut     = "/problems/sold-out"
	problemBusy        = "/problems/busy"
	problemUnavailable = "/problems/unavailable"
	problemInProgress  = "/problems/in-progress" // the first request with the key may still deduct, this one has not
)

// noRemaining stands for a reply without `remaining`, which the judge distinguishes from zero.
const noRemaining = math.MinInt64

// reply has the members of a receipt and of a problem, so that a body is decoded only once.
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

// readReceipt records the answer to a deduction.
func readReceipt(op *history.Op, header http.Header, body []byte) {
	readHeader(op, header)
	op.Replayed = first(header, "Idempotency-Replayed") == "true"

	answer := reply{Remaining: noRemaining}
	malformed := json.Unmarshal(body, &answer) != nil
	op.Error = answer.Type

	switch {
	case op.Status == http.StatusOK:
		// A receipt that is unreadable or for something else confirms nothing.
		if malformed || answer.GoodsID != op.GoodsID || answer.Count != op.Count {
			op.Outcome, op.Error = history.Unknown, "the receipt does not match the request"
			return
		}
		op.Outcome = history.Sold
		if op.OmitsRemaining = answer.Remaining == noRemaining; !op.OmitsRemaining {
			op.Remaining = answer.Remaining
		}
		op.Attempts = answer.Attempts
		op.Token = answer.Token
		op.WaitedUS, op.HeldUS = answer.WaitedUS, answer.HeldUS
		op.EnteredNS, op.LeftNS = answer.EnteredNS, answer.LeftNS
	case op.Status == http.StatusConflict && answer.Type == problemSoldOut && answer.Remaining != noRemaining:
		op.Outcome, op.Remaining = history.SoldOut, answer.Remaining
	default:
		op.Outcome = classifyFailure(op.Status, answer.Type)
	}
	if op.Outcome != history.Sold && op.Error == "" {
		op.Error = http.StatusText(op.Status)
	}
}

// readOrderReply records the answer to an order.
func readOrderReply(op *history.Op, header http.Header, body []byte) {
	readHeader(op, header)
	op.Replayed = first(header, "Idempotency-Replayed") == "true"
	readOrder(op, body)
}

// readRestocked records the answer to a restock.
func readRestocked(op *history.Op, header http.Header, body []byte) {
	readHeader(op, header)
	var answer struct {
		Type  string `json:"type"`
		Stock *int64 `json:"stock"`
	}
	malformed := json.Unmarshal(body, &answer) != nil
	op.Error = answer.Type
	if op.Status == http.StatusOK && !malformed && answer.Stock != nil {
		op.Outcome, op.Remaining = history.Sold, *answer.Stock
		return
	}
	op.Outcome = classifyFailure(op.Status, answer.Type)
}

func readHeader(op *history.Op, header http.Header) {
	op.Replica = first(header, "X-Replica")
	op.RequestID = first(header, "X-Request-Id")
}

// classifyFailure returns the outcome of a request that did not succeed.
func classifyFailure(status int, problem string) history.Outcome {
	switch {
	case status == http.StatusServiceUnavailable && (problem == problemBusy || problem == problemUnavailable):
		return history.Busy
	case status == http.StatusConflict && problem == problemInProgress:
		return history.Busy
	case status >= 400 && status < 500:
		return history.Rejected
	}
	return history.Unknown
}

// first is http.Header.Get for a name that is canonical already.
func first(header http.Header, canonical string) string {
	if values := header[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}
