package traffic

import (
	"bytes"
	"io"
	"math"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"stock/loadtest/internal/history"
)

// Problem types of the service that promise that nothing was deducted. Any other 5xx may come from a proxy that gave
// up on a replica that went on, so it promises nothing.
const (
	problemSoldOut     = "/problems/sold-out"
	problemBuyerLimit  = "/problems/buyer-limit"
	problemUnavailable = "/problems/unavailable"
	problemInProgress  = "/problems/in-progress" // the first request with the key may still deduct, this one has not
)

// noRemaining stands for a reply without `remaining` or `bought`, which the judge distinguishes from zero.
const noRemaining = math.MinInt64

// reply has the members of a receipt and of a problem, so that a body is parsed only once.
type reply struct {
	problem   string
	goodsID   int64
	count     int64
	remaining int64
	bought    int64
	attempts  int64
	token     uint64
	waitedUS  int64
	heldUS    int64
	enteredNS int64
	leftNS    int64
	stock     int64 // of a restock
	malformed bool
}

// replyReader parses replies. It is reused from reply to reply.
type replyReader struct {
	decoder jsontext.Decoder
	body    bytes.Buffer
	problem string // of the last reply that had one
}

// parse parses the body of a reply. A malformed one says nothing, not even what it begins with. It converts no values
// by reflection, because it runs once per request.
func (r *replyReader) parse(body []byte) reply {
	r.body.Reset()
	r.body.Write(body)
	r.decoder.Reset(&r.body)
	answer := reply{remaining: noRemaining, bought: noRemaining, stock: noRemaining}
	if !r.object(&answer) {
		return reply{remaining: noRemaining, bought: noRemaining, stock: noRemaining, malformed: true}
	}
	return answer
}

// object parses an object that nothing follows. It returns false if the text is anything else.
func (r *replyReader) object(answer *reply) bool {
	if token, err := r.decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return false
	}
	for r.decoder.PeekKind() == '"' {
		if !r.member(answer) {
			return false
		}
	}
	if _, err := r.decoder.ReadToken(); err != nil {
		return false
	}
	_, err := r.decoder.ReadToken()
	return err == io.EOF //nolint:errorlint // never wrapped
}

// member parses one member of an object. It returns false if the member is malformed.
func (r *replyReader) member(answer *reply) bool {
	name, err := r.decoder.ReadValue()
	if err != nil {
		return false
	}
	var number *int64
	switch string(name) {
	case `"goods_id"`:
		number = &answer.goodsID
	case `"count"`:
		number = &answer.count
	case `"remaining"`:
		number = &answer.remaining
	case `"bought"`:
		number = &answer.bought
	case `"attempts"`:
		number = &answer.attempts
	case `"waited_us"`:
		number = &answer.waitedUS
	case `"held_us"`:
		number = &answer.heldUS
	case `"entered_ns"`:
		number = &answer.enteredNS
	case `"left_ns"`:
		number = &answer.leftNS
	case `"stock"`:
		number = &answer.stock
	case `"token"`:
		token, err := r.decoder.ReadToken()
		if err != nil || token.Kind() != '0' {
			return false
		}
		answer.token, err = token.Uint()
		return err == nil
	case `"type"`:
		return r.readProblem(answer)
	default:
		return r.decoder.SkipValue() == nil
	}
	token, err := r.decoder.ReadToken()
	switch {
	case err != nil:
		return false
	case token.Kind() == 'n':
		return true // null: as if it were not there
	case token.Kind() != '0':
		return false
	}
	*number, err = token.Int()
	return err == nil
}

// readProblem reads the type of a problem. It keeps the last one, because refusals repeat.
func (r *replyReader) readProblem(answer *reply) bool {
	value, err := r.decoder.ReadValue()
	if err != nil || value.Kind() != '"' {
		return false
	}
	if quoted := value[1 : len(value)-1]; string(quoted) != r.problem {
		r.problem = string(quoted)
	}
	answer.problem = r.problem
	return true
}

// readDeduction records the answer to a deduction.
func (r *replyReader) readDeduction(op *history.Op, response *fasthttp.Response) {
	op.Replayed = string(response.Header.Peek("Idempotency-Replayed")) == "true"
	answer := r.parse(response.Body())
	op.Error = answer.problem

	switch {
	case op.Status == http.StatusOK:
		// A receipt that is unreadable or for something else confirms nothing.
		if answer.malformed || answer.goodsID != op.GoodsID || answer.count != op.Count {
			op.Outcome, op.Error = history.Unknown, history.Mismatch
			return
		}
		op.Outcome = history.Sold
		if op.OmitsRemaining = answer.remaining == noRemaining; !op.OmitsRemaining {
			op.Remaining = answer.remaining
		}
		op.Attempts = int(answer.attempts)
		op.Token = answer.token
		op.WaitedUS, op.HeldUS = answer.waitedUS, answer.heldUS
		op.EnteredNS, op.LeftNS = answer.enteredNS, answer.leftNS
	case op.Status == http.StatusConflict && answer.problem == problemSoldOut && answer.remaining != noRemaining:
		op.Outcome, op.Remaining = history.SoldOut, answer.remaining
	case op.Status == http.StatusConflict && answer.problem == problemBuyerLimit && answer.bought != noRemaining:
		op.Outcome, op.Bought = history.BuyerLimit, answer.bought
	default:
		op.Outcome = classifyFailure(op.Status, answer.problem)
	}
	if op.Outcome != history.Sold && op.Error == "" {
		op.Error = http.StatusText(op.Status)
	}
}

// readRestocked records the answer to a restock.
func (r *replyReader) readRestocked(op *history.Op, response *fasthttp.Response) {
	op.Replica = string(response.Header.Peek("X-Replica"))
	op.RequestID = string(response.Header.Peek("X-Request-Id"))
	answer := r.parse(response.Body())
	op.Error = answer.problem
	if op.Status == http.StatusOK && !answer.malformed && answer.stock != noRemaining {
		op.Outcome, op.Remaining = history.Sold, answer.stock
		return
	}
	op.Outcome = classifyFailure(op.Status, answer.problem)
}

// classifyFailure returns the outcome of a request that did not succeed.
func classifyFailure(status int, problem string) history.Outcome {
	switch {
	case status == http.StatusServiceUnavailable && (problem == history.BusyProblem || problem == problemUnavailable):
		return history.Busy
	case status == http.StatusConflict && problem == problemInProgress:
		return history.Busy
	case status == http.StatusConflict && problem == history.ProblemSaleCancelled:
		return history.Withdrawn
	case status >= 400 && status < 500:
		return history.Rejected
	}
	return history.Unknown
}
