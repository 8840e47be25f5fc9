package traffic

import (
	"cmp"
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

// readOrder records the answer to an order.
func readOrder(op *history.Op, response *fasthttp.Response) {
	op.Replayed = string(response.Header.Peek("Idempotency-Replayed")) == "true"
	var reply callReply
	unreadable := json.Unmarshal(response.Body(), &reply) != nil
	switch {
	case op.Status == http.StatusOK:
		readOrderReceipt(op, reply, unreadable)
	case op.Status == http.StatusConflict && reply.Type == problemSoldOut && reply.Remaining != nil:
		op.Outcome, op.Error = history.SoldOut, reply.Type
		i := lineOf(op, reply.GoodsID)
		if i < 0 { // it is about another order
			op.Outcome, op.Error = history.Unknown, history.Mismatch
			return
		}
		op.Lines = slices.Clone(op.Lines) // they may be in flight a second time
		op.Lines[i].Short, op.Lines[i].Remaining = true, *reply.Remaining
	default: // an unreadable problem has no type, so that the status decides
		op.Outcome, op.Error = classifyFailure(op.Status, reply.Type), cmp.Or(reply.Type, http.StatusText(op.Status))
	}
}

// readOrderReceipt records a receipt. One that is unreadable or for something else confirms nothing.
func readOrderReceipt(op *history.Op, receipt callReply, unreadable bool) {
	op.Outcome, op.Error = history.Unknown, history.Mismatch
	if unreadable || len(receipt.Lines) != len(op.Lines) {
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
