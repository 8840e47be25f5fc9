package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// ErrNoOrders says that a strategy takes no orders of several goods, on this store or of this many lines.
var ErrNoOrders = errors.New("takes no orders")

// Orderer takes units of several goods out of stock: all that an order asks for, or nothing. A Deducter may be one.
type Orderer interface {
	// Order returns an OrderReceipt or an error like those of Deduct. What concerns one goods alone, as that it is sold out or
	// unknown, comes as a *LineError.
	Order(ctx context.Context, req OrderRequest) (OrderReceipt, error)
}

// MaxLines is the most lines that an order may have.
const MaxLines = 100

// Line asks for units of one goods.
type Line struct {
	GoodsID int64
	Count   int // units, 1 to MaxCount
}

// OrderRequest asks for the units of all of its lines. NewOrder makes it.
type OrderRequest struct {
	lines []Line        // in ascending order, one a goods
	Key   string        // idempotency key of the whole order, as of a Request
	Hold  time.Duration // work to do inside the critical section, 0 to MaxHold
	Pause PauseFunc     // nil but in a lab: see Point. An order passes AfterLock for each goods, as soon as it is locked.
}

// NewOrder merges the lines of one goods and puts them in ascending order. Whatever a customer's order of goods, all
// strategies then lock them in the same one, so that two orders cannot each hold what the other waits for. It refuses no
// lines at all, more than MaxLines, and more than MaxCount units of one goods in all.
func NewOrder(lines ...Line) (OrderRequest, error) {
	if len(lines) < 1 || len(lines) > MaxLines {
		return OrderRequest{}, fmt.Errorf("the order has %d lines: it must have 1 to %d", len(lines), MaxLines)
	}
	lines = slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return cmp.Compare(a.GoodsID, b.GoodsID) })
	merged := lines[:1]
	for _, line := range lines[1:] {
		last := &merged[len(merged)-1]
		if line.GoodsID != last.GoodsID {
			merged = append(merged, line)
			continue
		}
		last.Count += line.Count
		if last.Count > MaxCount {
			return OrderRequest{}, fmt.Errorf("the order asks for %d units of goods %d in all: it may ask for %d", last.Count, last.GoodsID, MaxCount)
		}
	}
	return OrderRequest{lines: merged}, nil
}

// Lines are one a goods, in ascending order.
func (r OrderRequest) Lines() []Line { return slices.Clone(r.lines) }

// OrderReceipt confirms an order. Its Receipt is of the whole order: Remaining and Token are 0, each line has its own.
type OrderReceipt struct {
	Receipt
	Lines []LineReceipt // one a goods, in ascending order
}

// LineReceipt confirms what was deducted of one goods.
type LineReceipt struct {
	Line
	Remaining int64  // units left right after this very order
	Token     uint64 // fencing token of the goods' lock, 0 where the strategy has none
}

// LineError names the goods for which an order was refused.
type LineError struct {
	GoodsID int64
	Err     error
}

func (e *LineError) Error() string { return fmt.Sprintf("line of goods %d: %v", e.GoodsID, e.Err) }

// Unwrap makes the refusal known to errors.Is and errors.As.
func (e *LineError) Unwrap() error { return e.Err }

// refused is a refusal of the order on account of this line.
func (l Line) refused(err error) error { return &LineError{l.GoodsID, err} }

// steps has the key, the pause and the work of the order, for what it shares with deductions.
func (r OrderRequest) steps() Request { return Request{Key: r.Key, Hold: r.Hold, Pause: r.Pause} }

func (s *section) orderReceipt(lines []LineReceipt) OrderReceipt {
	return OrderReceipt{s.receipt(0, 1), lines}
}

// Order locks each goods by the very UPDATE that deducts from it, and gives up all of them with the first that has too few.
func (u update) Order(ctx context.Context, req OrderRequest) (receipt OrderReceipt, err error) {
	section := arrive()
	err = u.inTx(ctx, nil, req.steps(), func(tx *sqlx.Tx) error {
		in := mysqlTx{tx}
		// A plain read would show what was there when the transaction began.
		done, err := in.deductAll(ctx, req, &section, in.readForUpdate)
		if err != nil {
			return err
		}
		if section.leave(); req.Hold == 0 && req.Pause == nil {
			section.left = section.entered // it lay inside the statements, as of a deduction
		}
		receipt = section.orderReceipt(done)
		return nil
	})
	return receipt, err
}

// deductAll deducts every line by a conditional UPDATE, and does the work of the order when it has locked all goods. Nothing
// of it stands before COMMIT. See deduct for reread.
func (s mysqlTx) deductAll(ctx context.Context, req OrderRequest, section *section, reread rereader) ([]LineReceipt, error) {
	steps := req.steps()
	if err := steps.pause(ctx, BeforeWrite); err != nil {
		return nil, interrupted(err)
	}
	var done []LineReceipt
	for _, line := range req.lines {
		remaining, err := s.deduct(ctx, line, reread)
		if err != nil {
			return nil, line.refused(err)
		}
		done = append(done, LineReceipt{Line: line, Remaining: remaining})
		if err := steps.pause(ctx, AfterLock); err != nil {
			return nil, interrupted(err)
		}
	}
	section.enter()
	if err := steps.work(ctx); err != nil {
		return nil, interrupted(err)
	}
	return done, nil
}

// rereader reads what is there now. At READ COMMITTED that is a plain read, which locks nothing for a refusal. At REPEATABLE
// READ, where a plain read shows what was there before the UPDATE looked, it is one that locks.
type rereader func(ctx context.Context, goodsID int64) (units int64, err error)

// deduct takes the units of one line, and keeps the row locked.
func (s mysqlTx) deduct(ctx context.Context, line Line, reread rereader) (remaining int64, err error) {
	for {
		result, err := s.tx.ExecContext(ctx, deductSQL, line.Count, line.GoodsID, line.Count)
		if err != nil {
			return 0, refusal(err)
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		if rows == 1 {
			return result.LastInsertId()
		}
		// No row: too few units, or no such goods. Only a refusal pays for the second question.
		units, err := reread(ctx, line.GoodsID)
		if err != nil {
			return 0, err
		}
		if units < int64(line.Count) {
			return 0, &SoldOutError{line.GoodsID, line.Count, units}
		}
		// Restocked between the two: ask again, lest a buyer be refused while there is stock.
	}
}

// Order locks one goods after the other. One SELECT of them all would lock in the order in which the server happens to read
// them, and with few goods in the table that is not the index's: it reads, and locks, the whole table.
func (f forUpdate) Order(ctx context.Context, req OrderRequest) (receipt OrderReceipt, err error) {
	section := arrive()
	steps := req.steps()
	err = f.inTx(ctx, nil, steps, func(tx *sqlx.Tx) error {
		in := mysqlTx{tx}
		levels, err := req.read(func(line Line) (level, error) {
			units, err := in.readForUpdate(ctx, line.GoodsID)
			if err != nil {
				return level{}, line.refused(err)
			}
			if err := steps.pause(ctx, AfterLock); err != nil {
				return level{}, interrupted(err)
			}
			return level{line.GoodsID, units, claim{}}, nil
		})
		if err != nil {
			return err
		}
		section.enter()
		receipt, err = req.write(ctx, levels, in.writeAll, section)
		return err
	})
	return receipt, err
}

// level is the stock of one goods, as it was read or is to be written by whoever has the claim.
type level struct {
	goodsID, units int64
	claim          claim // of the lock's holder; without an issuer where nothing is fenced
}

// read reads the stock of every line.
func (r OrderRequest) read(read func(Line) (level, error)) ([]level, error) {
	levels := make([]level, len(r.lines))
	for i, line := range r.lines {
		var err error
		if levels[i], err = read(line); err != nil {
			return nil, err
		}
	}
	return levels, nil
}

// write checks every line, and then writes all of them at once: a crash must not leave half an order behind.
func (r OrderRequest) write(ctx context.Context, levels []level, writeAll func(context.Context, []level) error, section section) (OrderReceipt, error) {
	steps := r.steps()
	if err := steps.pause(ctx, AfterRead); err != nil {
		return OrderReceipt{}, interrupted(err)
	}
	done := make([]LineReceipt, len(r.lines))
	for i, line := range r.lines {
		before := &levels[i]
		if before.units < int64(line.Count) {
			return OrderReceipt{}, line.refused(&SoldOutError{line.GoodsID, line.Count, before.units})
		}
		before.units -= int64(line.Count)
		done[i] = LineReceipt{line, before.units, before.claim.token}
	}
	if err := steps.work(ctx); err != nil {
		return OrderReceipt{}, interrupted(err)
	}
	if err := steps.pause(ctx, BeforeWrite); err != nil {
		return OrderReceipt{}, interrupted(err)
	}
	if err := writeAll(ctx, levels); err != nil {
		return OrderReceipt{}, err
	}
	_ = steps.pause(ctx, BeforeUnlock) // the write stands, whatever ends the pause
	section.leave()
	return section.orderReceipt(done), nil
}
