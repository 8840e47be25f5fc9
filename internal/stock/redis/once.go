package redis

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
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
	line        stock.LineReceipt // with a count of 0 if refused, and zero if cancelled
	epoch       string            // of the stock that the units were sold from
	cancelled   int               // units
	givenBack   int               // of these, those that were put back into the stock
}

// takenError ends a request whose key is taken.
type takenError struct{ record string }

func (e *takenError) Error() string { return "the idempotency key is taken" }

// fingerprintText is a fingerprint as a record has it.
func fingerprintText(fingerprint []byte) string { return hex.EncodeToString(fingerprint[:16]) }

// recordText is the record of a deduction that leaves units, without the epoch of the stock.
func recordText(req stock.Request, units int64) string {
	fingerprint := fingerprintText(req.Fingerprint(stock.Redis))
	return fmt.Sprintf("%s %s %d %d %d", fingerprint, done, req.GoodsID, req.Count, units)
}

// refusalText is the record of a refusal.
func refusalText(fingerprint []byte, refusal *stock.SoldOutError) string {
	return fmt.Sprintf("%s %s %d 0 %d 0", fingerprintText(fingerprint), soldOut, refusal.GoodsID, refusal.Remaining)
}

func parseRecord(text string) (r record, err error) {
	answer, changes, cancelledInPart := strings.Cut(text, " /")
	fields := strings.Fields(answer)
	switch {
	case len(fields) == 2 && fields[1] == cancelled && !cancelledInPart:
		return record{fingerprint: fields[0], outcome: cancelled}, nil
	case len(fields) != 6:
		return r, fmt.Errorf("record of an idempotency key in Redis: %q is none", text)
	}
	r.fingerprint, r.outcome, r.epoch = fields[0], fields[1], fields[5]
	_, err = fmt.Sscan(strings.Join(fields[2:5], " "), &r.line.GoodsID, &r.line.Count, &r.line.Remaining)
	if err == nil && cancelledInPart {
		_, err = fmt.Sscan(changes, &r.cancelled, &r.givenBack)
	}
	if err != nil {
		return r, fmt.Errorf("record of an idempotency key in Redis: %q is none: %w", text, err)
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
	remaining := first.line.Remaining
	if first.outcome == soldOut {
		refusal := &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: remaining}
		return stock.Receipt{Replayed: true}, refusal
	}
	return stock.Receipt{Remaining: remaining, Attempts: 1, Replayed: true}, nil
}

// Once implements stock.Lockable. It keeps a refusal, unless the key has a record by now.
func (s Store) Once(
	ctx context.Context, req stock.Request, deduct func() (stock.Receipt, error),
) (stock.Receipt, error) {
	receipt, err := deduct()
	if req.Key == "" {
		return receipt, err
	}
	if taken, ok := errors.AsType[*takenError](err); ok {
		return replay(taken.record, req)
	}
	refusal, ok := errors.AsType[*stock.SoldOutError](err)
	if !ok {
		return receipt, err
	}
	key := s.RecordKey(req.GoodsID, req.Key)
	args := []any{refusalText(req.Fingerprint(stock.Redis), refusal), s.refusalTTL.Milliseconds()}
	first, failure := refuseScript.Run(context.WithoutCancel(ctx), s.Client, []string{key}, args...).Text()
	switch {
	case failure != nil && !isNil(failure):
		return receipt, stock.Unrecorded(err, failure)
	case first != "":
		return replay(first, req)
	}
	return receipt, err
}
