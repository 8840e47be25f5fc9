package redis

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

var (
	//go:embed lua/refuse.lua
	refuseLua    string
	refuseScript = redis.NewScript(refuseLua)
)

// The outcomes of a record.
const (
	done      = "done"
	streamed  = "streamed" // done, and MySQL gets the sale through the stream of redis-stream
	soldOut   = "sold-out"
	cancelled = "cancelled" // nothing was sold
)

// record is the answer to the first request with an idempotency key. The script or the transaction that deducts writes
// it as text: see sale.lua. Redis forgets it after a time: see stock.Deps.
type record struct {
	fingerprint string
	outcome     string
	guard       string              // the strategy whose locks guard the stock, if nothing else does
	lines       []stock.LineReceipt // one item with a count of 0 if refused, none if cancelled
	epochs      []string            // of the stocks that the lines were sold from
	cancelled   []undone            // by line
}

// undone is what was cancelled of a line: units, of which some were put back into the stock.
type undone struct{ units, back int }

// takenError ends a request whose key is taken.
type takenError struct{ record string }

func (e *takenError) Error() string { return "the idempotency key is taken" }

// fingerprintText is a fingerprint as a record has it.
func fingerprintText(fingerprint []byte) string { return hex.EncodeToString(fingerprint[:16]) }

// guarded is the outcome of a sale as a record has it.
func guarded(outcome, guard string) string {
	if guard == "" {
		return outcome
	}
	return outcome + ":" + guard
}

// refusalText is the record of a refusal.
func refusalText(fingerprint []byte, refusal *stock.SoldOutError) string {
	return fmt.Sprintf("%s %s %d 0 %d 0", fingerprintText(fingerprint), soldOut, refusal.GoodsID, refusal.Remaining)
}

func parseRecord(text string) (r record, err error) {
	answer, changes, _ := strings.Cut(text, " /")
	fields := strings.Fields(answer)
	if len(fields)%4 != 2 || len(fields) == 2 && fields[1] != cancelled {
		return r, fmt.Errorf("record of an idempotency key in Redis: %q is none", text)
	}
	r.fingerprint = fields[0]
	r.outcome, r.guard, _ = strings.Cut(fields[1], ":")
	for f := range slices.Chunk(fields[2:], 4) {
		var line stock.LineReceipt
		if _, err := fmt.Sscan(strings.Join(f[:3], " "), &line.GoodsID, &line.Count, &line.Remaining); err != nil {
			return r, fmt.Errorf("record of an idempotency key in Redis: %q is none: %w", text, err)
		}
		r.lines, r.epochs = append(r.lines, line), append(r.epochs, f[3])
	}
	r.cancelled = make([]undone, len(r.lines))
	if changes == "" {
		return r, nil
	}
	rest := strings.NewReader(changes)
	for i := range r.cancelled {
		if _, err := fmt.Fscan(rest, &r.cancelled[i].units, &r.cancelled[i].back); err != nil {
			return r, fmt.Errorf("record of an idempotency key in Redis: %q is none: %w", text, err)
		}
	}
	return r, nil
}

// check refuses a request whose key was used for another one, or was cancelled.
func check(text, key string, fingerprint []byte) (r record, replayed bool, err error) {
	r, err = parseRecord(text)
	if err != nil {
		return r, false, err
	}
	first := r.sale(key)
	switch {
	case text != tombstone && r.fingerprint != fingerprintText(fingerprint):
		return r, false, fmt.Errorf("%w: %q", stock.ErrKeyReused, key)
	case first.CannotSell():
		return r, true, fmt.Errorf("%w: %q", stock.ErrCancelled, key)
	}
	return r, true, nil
}

// replay gives the first answer to a deduction that is sent again.
func replay(text string, req stock.Request) (stock.Receipt, error) {
	first, replayed, err := check(text, req.Key, req.Fingerprint(stock.Redis))
	if err != nil {
		return stock.Receipt{Replayed: replayed}, err
	}
	remaining := first.lines[0].Remaining
	if first.outcome == soldOut {
		refusal := &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: remaining}
		return stock.Receipt{Replayed: true}, refusal
	}
	return stock.Receipt{Remaining: remaining, Attempts: 1, Replayed: true}, nil
}

// replayOrder gives the first answer to an order that is sent again.
func replayOrder(text string, req stock.OrderRequest) (stock.OrderReceipt, error) {
	first, replayed, err := check(text, req.Key, req.Fingerprint(stock.Redis))
	receipt := stock.OrderReceipt{Receipt: stock.Receipt{Attempts: 1, Replayed: replayed}}
	if err != nil {
		return receipt, err
	}
	if first.outcome == soldOut {
		at := first.lines[0]
		lines := req.Lines()
		line := lines[slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID == at.GoodsID })]
		refusal := &stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count, Remaining: at.Remaining}
		return receipt, line.Refused(refusal)
	}
	receipt.Lines = first.lines
	return receipt, nil
}

// Once implements stock.Lockable.
func (s Store) Once(
	ctx context.Context, req stock.Request, deduct func() (stock.Receipt, error),
) (stock.Receipt, error) {
	if req.Key == "" {
		return deduct()
	}
	return once(ctx, s, s.RecordKey(req.GoodsID, req.Key), req.Fingerprint(stock.Redis), deduct,
		func(first string) (stock.Receipt, error) { return replay(first, req) })
}

// OrderOnce implements stock.Lockable.
func (s Store) OrderOnce(
	ctx context.Context, req stock.OrderRequest, order func() (stock.OrderReceipt, error),
) (stock.OrderReceipt, error) {
	if req.Key == "" {
		return order()
	}
	return once(ctx, s, s.RecordKey(req.Lines()[0].GoodsID, req.Key), req.Fingerprint(stock.Redis), order,
		func(first string) (stock.OrderReceipt, error) { return replayOrder(first, req) })
}

// once carries a request out. If its key has a record already, it gives the first answer. It keeps a refusal, unless
// the key has a record by now.
func once[Receipt any](
	ctx context.Context, s Store, key string, fingerprint []byte,
	carryOut func() (Receipt, error), answer func(first string) (Receipt, error),
) (Receipt, error) {
	receipt, err := carryOut()
	if taken, ok := errors.AsType[*takenError](err); ok {
		return answer(taken.record)
	}
	refusal, ok := errors.AsType[*stock.SoldOutError](err)
	if !ok {
		return receipt, err
	}
	args := []any{refusalText(fingerprint, refusal), s.refusalTTL.Milliseconds()}
	first, failure := refuseScript.Run(context.WithoutCancel(ctx), s.Client, []string{key}, args...).Text()
	switch {
	case failure != nil && !isNil(failure):
		return receipt, stock.Unrecorded(err, failure)
	case first != "":
		return answer(first)
	}
	return receipt, err
}
