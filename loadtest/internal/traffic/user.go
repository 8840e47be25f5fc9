package traffic

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"stock/loadtest/internal/history"
)

// user is one client. Only its own goroutine touches its fields while it runs.
type user struct {
	run         *run
	number      int
	connections []*connection    // one to each server
	connection  *connection      // the current one of them
	records     []*[chunk]record // full but for the last
	recorded    int

	// Reused from request to request.
	id, body, request []byte
	answer            reply
	replica           string // that answered last
}

// record is what a user notes about a request. The strings that would cost an allocation are filled in after the load.
type record struct {
	op     history.Op
	number int  // of the request in its load; -1: op has its name already
	echoed bool // the reply had the request's own id, which is its name
}

// chunk is how many records are allocated at once: a slice that grows would copy them in the middle of the load.
const chunk = 64

// newRecord returns room for a record. It stays where it is.
func (u *user) newRecord() *record {
	if u.recorded%chunk == 0 {
		u.records = append(u.records, new([chunk]record))
	}
	u.recorded++
	return &u.records[(u.recorded-1)/chunk][(u.recorded-1)%chunk]
}

// sendNth sends the n-th request of the load. In an open loop, intendedNS is when it should have been sent.
func (u *user) sendNth(ctx context.Context, n int, intendedNS int64) {
	op := u.op(n)
	op.IntendedNS = intendedNS
	u.id = strconv.AppendInt(append(append(u.id[:0], u.run.load.RequestPrefix...), '-'), int64(n), 10)
	answered := u.post(ctx, n, u.id, op)
	u.run.load.countAnswered()
	if u.run.load.Watch != nil {
		u.run.load.Watch(answered)
	}
}

// op describes the n-th request of the load, without its name.
func (u *user) op(n int) history.Op {
	op := history.Op{Kind: history.Deduct}
	if op.Lines = u.run.load.Mix.Order(n); op.Lines != nil {
		op.Kind = history.Order
	} else {
		op.GoodsID, op.Count = u.run.load.Mix.At(n)
	}
	return op
}

// name is the name of the n-th request.
func (l *Load) name(n int) string { return l.RequestPrefix + "-" + strconv.Itoa(n) }

func (l *Load) countAnswered() {
	if l.Answered != nil {
		l.Answered.Add(1)
	}
}

// send sends the request that op describes, and records it with its answer, which it returns.
func (u *user) send(ctx context.Context, op history.Op) history.Op {
	u.id = append(u.id[:0], op.Name...)
	switch {
	case !op.Sells() && op.Kind != history.Restock:
		u.id = fmt.Appendf(u.id, "-%s-%d-%d", op.Kind, u.number, u.recorded)
	case op.Again:
		u.id = append(u.id, "-again"...)
	}
	return *u.post(ctx, -1, u.id[:len(op.Name)], op)
}

// post sends the request that op describes with the id u.id, and records it with its answer. It returns the record.
func (u *user) post(ctx context.Context, number int, key []byte, op history.Op) *history.Op {
	op.Client = u.number
	r := u.run
	if r.load.Service != nil {
		return u.ask(ctx, number, key, op)
	}
	if !op.Keyed && (!r.load.Keys || !op.Sells()) {
		key = nil
	}
	u.body = u.body[:0]
	header := r.deductHeader
	if op.Kind == history.Deduct {
		u.body = appendBody(u.body, r.body, &op)
	} else {
		method, path, hasBody := r.load.route(&op)
		header = u.connection.server.header(method, path)
		if hasBody {
			u.body = appendBody(u.body, r.body, &op)
		}
	}
	u.request = appendRequest(u.request[:0], header, u.id, key, u.body)
	rec := u.newRecord()
	*rec = record{op: op, number: number}
	if !u.connection.exchange(ctx, u.request, r.load.Timeout, &rec.op) {
		return &rec.op
	}
	response := &u.connection.reply
	if replica := response.Header.Peek("X-Replica"); string(replica) != u.replica {
		u.replica = string(replica)
	}
	rec.op.Replica = u.replica
	id := response.Header.Peek("X-Request-Id")
	if rec.echoed = number >= 0 && bytes.Equal(id, u.id); !rec.echoed {
		rec.op.RequestID = string(id)
	}
	u.answer.read(&rec.op, response)
	return &rec.op
}

// ask is post for a service of the user's. A user asks one replica after the other.
func (u *user) ask(ctx context.Context, number int, key []byte, op history.Op) *history.Op {
	u.connection = u.connections[(u.number+u.recorded)%len(u.connections)]
	load, server := &u.run.load, &u.connection.server
	u.request = load.Service.AppendRequest(u.request[:0], server.host, server.path, string(key), &op)
	rec := u.newRecord()
	*rec = record{op: op, number: number}
	if u.connection.exchange(ctx, u.request, load.Timeout, &rec.op) {
		rec.op.Replica = server.host
		load.Service.ReadAnswer(&rec.op, rec.op.Status, u.connection.reply.Body())
	}
	return &rec.op
}

// appendOps appends what the user recorded, and frees its memory.
func (u *user) appendOps(ops []history.Op) []history.Op {
	for i := range u.recorded {
		rec := &u.records[i/chunk][i%chunk]
		op := rec.op
		if rec.number >= 0 {
			op.Name = u.run.load.name(rec.number)
		}
		if rec.echoed {
			op.RequestID = op.Name
		}
		ops = append(ops, op)
	}
	u.records, u.recorded = nil, 0
	return ops
}
