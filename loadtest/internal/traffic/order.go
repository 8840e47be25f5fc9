package traffic

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"

	"stock/loadtest/internal/history"
)

// appendOrder appends the body of an order.
func appendOrder(body, prefix []byte, lines []history.Line) []byte {
	body = append(body, prefix...)
	body = append(body, `"lines":[`...)
	for i, line := range lines {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"goods_id":`...)
		body = strconv.AppendInt(body, line.GoodsID, 10)
		body = append(body, `,"count":`...)
		body = strconv.AppendInt(body, line.Count, 10)
		body = append(body, '}')
	}
	return append(body, `]}`...)
}

// orderReceipt has the members of a receipt for an order.
type orderReceipt struct {
	Lines []struct {
		GoodsID   int64  `json:"goods_id"`
		Count     int64  `json:"count"`
		Remaining *int64 `json:"remaining"`
		Token     uint64 `json:"token"`
	} `json:"lines"`
	Attempts  int   `json:"attempts"`
	WaitedUS  int64 `json:"waited_us"`
	HeldUS    int64 `json:"held_us"`
	EnteredNS int64 `json:"entered_ns"`
	LeftNS    int64 `json:"left_ns"`
}

// orderProblem has the members of a problem.
type orderProblem struct {
	Type      string `json:"type"`
	GoodsID   int64  `json:"goods_id"` // the item because of which the order was refused
	Remaining *int64 `json:"remaining"`
}

// readOrder records the answer to an order.
func readOrder(op *history.Op, response *fasthttp.Response) {
	op.Replayed = string(response.Header.Peek("Idempotency-Replayed")) == "true"
	if op.Status == http.StatusOK {
		readOrderReceipt(op, response.Body())
		return
	}
	var problem orderProblem
	_ = json.Unmarshal(response.Body(), &problem) // an unreadable problem has no type, so that the status decides
	op.Error = problem.Type
	if op.Status == http.StatusConflict && problem.Type == problemSoldOut && problem.Remaining != nil {
		i := lineOf(op, problem.GoodsID)
		if i < 0 { // it is about another order
			op.Outcome, op.Error = history.Unknown, history.Mismatch
			return
		}
		op.Outcome, op.Lines = history.SoldOut, slices.Clone(op.Lines) // they may be in flight a second time
		op.Lines[i].Short, op.Lines[i].Remaining = true, *problem.Remaining
		return
	}
	op.Outcome = classifyFailure(op.Status, problem.Type)
	if op.Error == "" {
		op.Error = http.StatusText(op.Status)
	}
}

// readOrderReceipt records a receipt. One that is unreadable or for something else confirms nothing.
func readOrderReceipt(op *history.Op, body []byte) {
	var receipt orderReceipt
	op.Outcome, op.Error = history.Unknown, history.Mismatch
	if json.Unmarshal(body, &receipt) != nil || len(receipt.Lines) != len(op.Lines) {
		return
	}
	lines := slices.Clone(op.Lines)
	confirmed := map[int64]bool{}
	for _, line := range receipt.Lines {
		i := lineOf(op, line.GoodsID)
		if i < 0 || line.Count != op.Lines[i].Count || confirmed[line.GoodsID] {
			return
		}
		confirmed[line.GoodsID] = true
		lines[i].Token = line.Token
		if lines[i].OmitsRemaining = line.Remaining == nil; line.Remaining != nil {
			lines[i].Remaining = *line.Remaining
		}
	}
	op.Outcome, op.Error, op.Lines = history.Sold, "", lines
	op.Attempts = receipt.Attempts
	op.WaitedUS, op.HeldUS = receipt.WaitedUS, receipt.HeldUS
	op.EnteredNS, op.LeftNS = receipt.EnteredNS, receipt.LeftNS
}

// lineOf returns the index of the order's line for an item, or -1.
func lineOf(op *history.Op, goodsID int64) int {
	return slices.IndexFunc(op.Lines, func(line history.Line) bool { return line.GoodsID == goodsID })
}
