package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

var (
	//go:embed lua/cancel.lua
	cancelLua    string
	cancelScript = redis.NewScript(cancelLua)
)

// tombstone is the record of a key that was cancelled before anything was known of it.
const tombstone = "- " + cancelled

// Sale implements stock.Canceller.
func (s Store) Sale(ctx context.Context, id stock.SaleID) (stock.Sale, error) {
	text, err := s.findSale(ctx, id)
	if err == nil && text == "" {
		err = unknownSale(id)
	}
	if err != nil {
		return stock.Sale{}, err
	}
	r, err := parseRecord(text)
	if err != nil {
		return stock.Sale{}, err
	}
	sale := r.sale(id.Key)
	return sale, sale.Check(id)
}

// CancelSale implements stock.Canceller. It reads the record, and then runs a script that does nothing if the record is
// another by then. If there is none, a cancellation of everything makes one, which every sale finds that comes later.
func (s Store) CancelSale(ctx context.Context, req stock.CancelRequest) (sale stock.Sale, err error) {
	changed := func(err error) bool { return errors.Is(err, stock.ErrChanged) }
	err = retry.While(ctx, s.wait, changed, func() error {
		sale, err = s.tryCancel(ctx, req)
		return err
	})
	return sale, err
}

func (s Store) tryCancel(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	text, err := s.findSale(ctx, req.SaleID)
	switch {
	case err != nil:
		return stock.Sale{}, err
	case text == "" && req.Lines != nil:
		return stock.Sale{}, unknownSale(req.SaleID)
	case text == "":
		return stock.Sale{Key: req.Key, State: stock.SaleNeverSold}, s.replaceRecord(ctx, req.SaleID, text, tombstone, nil)
	}
	r, err := parseRecord(text)
	if err != nil {
		return stock.Sale{}, err
	}
	sale := r.sale(req.Key)
	if changed, err := sale.Cancel(req); err != nil || !changed {
		sale.Replayed = true
		return sale, err
	}
	back, err := s.giveBack(ctx, r, &sale)
	if err != nil {
		return stock.Sale{}, err
	}
	return sale, s.replaceRecord(ctx, req.SaleID, text, r.after(sale), back)
}

// findSale reads the record of a key, empty if there is none.
func (s Store) findSale(ctx context.Context, id stock.SaleID) (text string, err error) {
	if s.cluster() && id.GoodsID == 0 {
		return "", fmt.Errorf("%w: a Redis Cluster keeps the key %q beside it", stock.ErrItemNotNamed, id.Key)
	}
	text, err = s.Client.Get(ctx, s.RecordKey(id.GoodsID, id.Key)).Result()
	if isNil(err) {
		return "", nil
	}
	return text, Refusal(err)
}

func unknownSale(id stock.SaleID) error { return fmt.Errorf("%w: %q", stock.ErrUnknownSale, id.Key) }

// returned is units that are put back into the stock of an item.
type returned struct {
	goodsID  int64
	units    int
	epoch    string // of the stock that they were sold from
	streamed bool   // MySQL gets them, too
}

// giveBack returns what is to be put back when a record becomes that of a sale, nil for nothing, and counts it in the
// sale. Units of an earlier stock, or of an item that is gone, are not put back.
func (s Store) giveBack(ctx context.Context, r record, sale *stock.Sale) (*returned, error) {
	if len(sale.Lines) == 0 || sale.Lines[0].Cancelled == r.cancelled {
		return nil, nil
	}
	line := &sale.Lines[0]
	present, err := s.Client.MGet(ctx, s.Key(line.GoodsID), s.EpochKey(line.GoodsID)).Result()
	if err != nil {
		return nil, Refusal(err)
	}
	epoch, ok := present[1].(string)
	if !ok {
		epoch = "0"
	}
	if present[0] == nil || epoch != r.epoch {
		return nil, nil
	}
	units := line.Cancelled - r.cancelled
	line.GivenBack += units
	return &returned{line.GoodsID, units, epoch, r.outcome == streamed}, nil
}

// replaceRecord runs the script.
func (s Store) replaceRecord(ctx context.Context, id stock.SaleID, before, after string, back *returned) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	keys := []string{s.RecordKey(id.GoodsID, id.Key)}
	args := []any{before, after, s.saleTTL.Milliseconds()}
	var item int64 // of the stream
	if back != nil {
		keys = append(keys, s.Key(back.goodsID), s.EpochKey(back.goodsID), s.StreamKey(back.goodsID))
		args = append(args, back.units, back.epoch, int64(stock.MaxStock), "")
		if back.streamed {
			item, args[6] = back.goodsID, rand.Int64()
		}
	}
	reply, err := s.WithStream(ctx, item, func() *redis.Cmd {
		return cancelScript.Run(context.WithoutCancel(ctx), s.Client, keys, args...)
	})
	switch {
	case err != nil:
		return err
	case redis.HasErrorPrefix(reply.Err(), "CHANGED"):
		return fmt.Errorf("the sale %w: %w", stock.ErrChanged, reply.Err())
	case redis.HasErrorPrefix(reply.Err(), "OVERSTOCKED"):
		var present int64
		_, _ = fmt.Sscanf(reply.Err().Error(), "OVERSTOCKED %d", &present)
		return stock.Overstocked(back.goodsID, present, int64(back.units))
	}
	return classifyWrite(reply.Err())
}

// sale is what a record tells.
func (r record) sale(key string) stock.Sale {
	sale := stock.Sale{Key: key, State: stock.SaleRefused}
	switch r.outcome {
	case soldOut:
		return sale
	case cancelled:
	default:
		sale.Lines = []stock.SaleLine{{Line: r.line.Line, Cancelled: r.cancelled, GivenBack: r.givenBack}}
	}
	sale.State = stock.StateOf(sale.Lines)
	return sale
}

// after is the text of the record once the sale was changed by a cancellation.
func (r record) after(sale stock.Sale) string {
	if r.outcome == soldOut {
		return r.fingerprint + " " + cancelled
	}
	line := sale.Lines[0]
	return fmt.Sprintf("%s %s %d %d %d %s / %d %d", r.fingerprint, r.outcome, line.GoodsID, line.Count, r.line.Remaining,
		r.epoch, line.Cancelled, line.GivenBack)
}
