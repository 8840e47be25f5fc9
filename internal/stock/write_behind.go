package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// writeBehind writes what redis-stream has sold to MySQL, each sale exactly once. Every replica has one, and all of them
// share a consumer group a stream: an entry is delivered to one of them, and again to another where it was not
// acknowledged in time (XAUTOCLAIM).
//
// Delivery is at least once. It becomes exactly once in MySQL: the transaction that deducts from good_stock inserts a row
// with the entry's id and random number into stream_sale, and fails as a whole where there is one already. Entries are deleted
// after COMMIT; a replica that dies in between leaves entries that another one finds in stream_sale, and only deletes.
//
// Every goods has a stream of its own beside its stock, since in a Redis Cluster one script cannot reach two slots, and
// neither can one XREADGROUP. To block on all of them would take a connection a goods. In place of that, whoever sells
// rings: the replica reads the streams that it has sold into, all at once, and what is sold during one transaction
// goes into the next one. Nothing is asked while nothing is sold, but for a look at all streams every few seconds, by which
// the entries of replicas that died are found.
//
// No goods waits for another. A transaction takes the sales of several only where it finds none of their rows locked; where
// it does, each goods is written apart, and waits for its own row. What cannot be deleted from a stream is deleted later.
type writeBehind struct {
	db      mysqlStore
	streams streams
	log     *slog.Logger
	late    time.Duration // without an acknowledgement for so long, an entry is another replica's to write

	mu    sync.Mutex
	met   map[int64]bool // goods that have a consumer group, and belong into the index
	rung  map[int64]bool // goods that something may have been sold of
	apart map[int64]bool // goods that are being written apart

	writers sync.WaitGroup // of goods that are written apart
	tries   chan struct{}  // bounds how many of them wait for a row
	swept   time.Time      // when all goods of MySQL were looked at

	bell chan struct{} // has room for one: something is in rung
	stop context.CancelFunc
	cut  context.CancelFunc
	done chan struct{}
}

const (
	// A transaction takes up to so many entries of so many goods: a few hundred kilobytes.
	entriesATime = 256
	goodsATime   = 16
	// As many goods whose row is locked are waited for at a time, with a connection to MySQL each.
	apartATime = 8
	// lookAround is the longest pause between two looks at all streams that the index names.
	lookAround = 5 * time.Second
	// sweep is the pause between two looks at the streams of all goods that MySQL has: the index may lack one.
	sweep = time.Minute
	// Pauses after a failure.
	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	// lastWords is the time that Close leaves for the transaction under way.
	lastWords = 2 * time.Second
)

// startWriteBehind begins to write, from all streams that there are.
func startWriteBehind(d Deps) *writeBehind {
	w := &writeBehind{
		db: mysqlStore{d.MySQL}, streams: streams{d.Redis}, log: d.Log, late: lookAround,
		met: map[int64]bool{}, rung: map[int64]bool{}, apart: map[int64]bool{}, tries: make(chan struct{}, apartATime),
		bell: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if 0 < d.Lease && d.Lease < w.late {
		w.late = d.Lease
	}
	stopped, stop := context.WithCancel(context.Background())
	working, cut := context.WithCancel(context.Background())
	w.stop, w.cut = stop, cut
	go w.run(stopped, working)
	return w
}

// Close lets the transactions under way come to their end, for two seconds at most, and begins no other.
func (w *writeBehind) Close() error {
	w.stop()
	limit := time.AfterFunc(lastWords, w.cut)
	defer limit.Stop()
	<-w.done
	w.cut()
	return nil
}

// meet makes sure, before the first sale of a goods, that its stream can be read, and tells the other replicas of it. It fails
// as store.read does.
func (w *writeBehind) meet(ctx context.Context, goodsID int64) error {
	w.mu.Lock()
	met := w.met[goodsID]
	w.mu.Unlock()
	if met {
		return nil
	}
	// Or else anybody could fill the index, by asking for goods that do not exist.
	known, err := w.streams.client.Exists(ctx, redisKey(goodsID)).Result()
	if err != nil {
		return redisUnwritten(err)
	}
	if known == 0 {
		return fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, goodsID)
	}
	if err := w.streams.open(ctx, goodsID); err != nil {
		return redisUnwritten(err)
	}
	_ = w.streams.announce(ctx, goodsID) // or else lookAround does it
	w.mu.Lock()
	w.met[goodsID] = true
	w.mu.Unlock()
	return nil
}

// ring says that something may have been sold.
func (w *writeBehind) ring(goods ...int64) {
	w.mu.Lock()
	for _, id := range goods {
		w.rung[id] = true
	}
	w.mu.Unlock()
	select {
	case w.bell <- struct{}{}:
	default: // it rings already
	}
}

// next takes goods that were rung for and are not written apart.
func (w *writeBehind) next() (goods []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.rung {
		if len(goods) == goodsATime {
			break
		}
		if w.apart[id] {
			continue // it rings again when it is done
		}
		goods = append(goods, id)
		delete(w.rung, id)
	}
	slices.Sort(goods) // replicas that write the same entries wait for each other in one order
	return goods
}

// run writes until stopped ends. What it does by then is broken off when working ends.
func (w *writeBehind) run(stopped, working context.Context) {
	defer close(w.done)
	defer w.writers.Wait()
	around := time.NewTicker(w.late)
	defer around.Stop()
	reading := trouble{log: w.log, what: "read the sales of redis-stream, or delete those that are in MySQL"}
	var again <-chan time.Time
	look := true
	for stopped.Err() == nil {
		var err error
		if look {
			err = w.lookAround(stopped, working)
		}
		for goods := w.next(); len(goods) > 0 && stopped.Err() == nil; goods = w.next() {
			err = cmp.Or(err, w.pass(stopped, working, goods, w.streams.unread))
		}
		// Nobody waits for a master of a Cluster that is down, lest it hold up the sales of the others: all are looked at
		// again after a while.
		if look || err != nil {
			again = reading.tell(err)
		}
		look = false
		select {
		case <-stopped.Done():
		case <-w.bell:
		case <-around.C:
			look = true
		case <-again:
			look = true
		}
	}
}

// lookAround finds the streams that are not empty, and takes over what other replicas have not acknowledged in time. It
// also brings back the index, for the case that Redis has lost it.
func (w *writeBehind) lookAround(stopped, working context.Context) error {
	goods, sweeping, err := w.find(working)
	lengths, _, failed := w.streams.lengths(working, goods)
	err = cmp.Or(err, failed)
	var waiting, late []int64
	w.mu.Lock()
	for id, n := range lengths {
		if n == 0 {
			if sweeping {
				delete(w.met, id) // until it is sold again
			}
			continue
		}
		w.met[id] = true // it belongs into the index
		waiting = append(waiting, id)
		if !w.apart[id] { // or else its own entries would come again
			late = append(late, id)
		}
	}
	w.mu.Unlock()
	if len(waiting) > 0 {
		w.ring(waiting...)
	}
	overdue := func(ctx context.Context, pipe redis.Pipeliner, goodsID int64) func() ([]redis.XMessage, error) {
		return w.streams.overdue(ctx, pipe, goodsID, w.late)
	}
	for chunk := range slices.Chunk(late, goodsATime) {
		if stopped.Err() == nil {
			err = cmp.Or(err, w.pass(stopped, working, chunk, overdue))
		}
	}
	return err
}

// find lists the goods whose streams are to be looked at: those in the index and those met here; and all that MySQL has where
// the index does not answer, and once in a while, for it may lack some: it is sweeping then. Beside an error it returns what
// it found.
func (w *writeBehind) find(ctx context.Context) (goods []int64, sweeping bool, err error) {
	indexed, err := w.streams.goods(ctx)
	found := map[int64]bool{}
	for _, id := range indexed {
		found[id] = true
	}
	var lost []int64
	w.mu.Lock()
	for id := range w.met {
		if !found[id] {
			lost = append(lost, id)
			found[id] = true
		}
	}
	w.mu.Unlock()
	if err == nil && len(lost) > 0 {
		err = w.streams.announce(ctx, lost...)
	}
	if err != nil || time.Since(w.swept) > sweep {
		// That MySQL has trouble is told when there is something to write.
		if stored, failed := w.db.goods(ctx); failed == nil {
			w.swept, sweeping = time.Now(), err == nil
			for _, id := range stored {
				found[id] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found)), sweeping, err
}

// take queues the command that delivers entries of a goods' stream, and returns what reads its reply.
type take func(ctx context.Context, pipe redis.Pipeliner, goodsID int64) func() ([]redis.XMessage, error)

// pass writes what take delivers to MySQL, and deletes it from the streams. It does not give up what was delivered before
// it is stopped. The error is that of a stream that could not be read.
func (w *writeBehind) pass(stopped, working context.Context, goods []int64, take take) (err error) {
	replies := make([]func() ([]redis.XMessage, error), len(goods))
	_, _ = w.streams.client.Pipelined(working, func(pipe redis.Pipeliner) error {
		for i, id := range goods {
			replies[i] = take(working, pipe, id)
		}
		return nil
	})
	var sales []sale
	for i, id := range goods {
		messages, failed := replies[i]()
		if redis.HasErrorPrefix(failed, "NOGROUP") { // Redis has lost its data
			failed = w.streams.open(working, id)
			w.ring(id)
		}
		if failed != nil && !errors.Is(failed, redis.Nil) {
			err = cmp.Or(err, failed)
			continue
		}
		for _, message := range messages {
			s, unreadable := readSale(id, message)
			if unreadable != nil {
				w.log.Error("an entry in a stream of sales was not written by redis-stream: it stays there", "error", unreadable)
				err = cmp.Or(err, w.streams.park(working, id, message.ID))
				continue
			}
			sales = append(sales, s)
		}
		if len(messages) == entriesATime {
			w.ring(id) // there may be more
		}
	}
	return cmp.Or(err, w.settle(stopped, working, sales))
}

// settle writes sales to MySQL and deletes them from their streams. The error is that of a stream from which they could not
// be deleted.
func (w *writeBehind) settle(stopped, working context.Context, sales []sale) error {
	left, refused := sales, false
	written := w.insist(stopped, "write the sales of redis-stream to MySQL", func() (err error) {
		left, err = w.write(working, left, "NOWAIT")
		if refused = err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown); refused {
			return nil // a row is locked, or one of the goods has something that MySQL does not take: the others must not wait
		}
		return err
	})
	switch {
	case !written:
		w.leave(sales)
		return nil
	case refused:
		for id, sales := range byGoods(sales) {
			w.writeApart(stopped, working, id, sales)
		}
		return nil
	}
	return w.streams.remove(working, sales)
}

// writeApart settles the sales of one goods beside all others, as long as it takes.
func (w *writeBehind) writeApart(stopped, working context.Context, goodsID int64, sales []sale) {
	w.mu.Lock()
	w.apart[goodsID] = true
	w.mu.Unlock()
	w.writers.Go(func() {
		left := sales
		written := w.insist(stopped, fmt.Sprintf("write the sales of goods %d to MySQL", goodsID), func() (err error) {
			select {
			case w.tries <- struct{}{}:
			case <-stopped.Done():
				return stopped.Err()
			}
			defer func() { <-w.tries }()
			left, err = w.write(working, left, "")
			return err
		})
		if !written {
			w.leave(sales)
		} else if err := w.streams.remove(working, sales); err != nil {
			w.log.Warn("sales that are in MySQL are deleted from their stream later", "goods_id", goodsID, "error", err)
		}
		w.mu.Lock()
		delete(w.apart, goodsID)
		w.mu.Unlock()
		w.ring(goodsID)
	})
}

// leave tells of sales that were delivered and not written.
func (w *writeBehind) leave(sales []sale) {
	w.log.Info("stopped: sales of redis-stream wait for another replica, or for the next start", "sales", len(sales))
}

// insist tries until it succeeds, or is stopped.
func (w *writeBehind) insist(stopped context.Context, what string, try func() error) bool {
	trying := trouble{log: w.log, what: what}
	for {
		again := trying.tell(try())
		if again == nil {
			return true
		}
		select {
		case <-again:
		case <-stopped.Done():
			return false
		}
	}
}

// write writes sales to MySQL in one transaction. Where some of them are there already it writes nothing, and returns the
// others. It waits for rows that are locked, or with NOWAIT fails with ErrBusy.
func (w *writeBehind) write(ctx context.Context, sales []sale, wait string) (left []sale, err error) {
	if len(sales) == 0 {
		return nil, nil
	}
	err = w.db.inTx(ctx, readCommitted, Request{}, func(tx *sqlx.Tx) error { return w.record(ctx, tx, sales, wait) })
	var server *mysql.MySQLError
	if !errors.As(err, &server) || server.Number != erDupEntry {
		return sales, err
	}
	written, failed := recorded(ctx, w.db.db, sales)
	if failed != nil {
		return sales, failed
	}
	left = slices.DeleteFunc(slices.Clone(sales), func(s sale) bool { return written[s.key()] })
	if len(left) == len(sales) {
		return left, err
	}
	return w.write(ctx, left, wait)
}

// record locks the rows of the goods, in ascending order, so that no two replicas wait for each other; inserts the sales; and
// deducts those that were made from the stock that MySQL has. Whatever is left of it, the sale was made.
func (w *writeBehind) record(ctx context.Context, tx *sqlx.Tx, sales []sale, wait string) error {
	epochs, err := lockEpochs(ctx, tx, slices.Sorted(maps.Keys(byGoods(sales))), wait)
	if err != nil {
		return err
	}
	sold, stale := map[int64]int64{}, map[int64]int64{}
	var args []any
	for _, s := range sales {
		epoch, known := epochs[s.goodsID]
		deducted := known && epoch == s.epoch
		if deducted {
			sold[s.goodsID] += s.units
		} else {
			stale[s.goodsID] += s.units
		}
		args = append(args, s.goodsID, s.entry, s.nonce, s.units, s.epoch, deducted)
	}
	rows := strings.Repeat(", (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))", len(sales))[2:]
	if _, err := tx.ExecContext(ctx, "INSERT INTO stream_sale (goods_id, entry, nonce, units, epoch, deducted, written) VALUES "+rows, args...); err != nil {
		return refusal(err)
	}
	for id, units := range sold {
		if _, err := tx.ExecContext(ctx, "UPDATE good_stock SET stock = stock - ?, version = version + 1 WHERE goods_id = ?", units, id); err != nil {
			return refusal(err)
		}
	}
	for id, units := range stale {
		w.log.Warn("sales were made from a stock that is not MySQL's: they are in stream_sale, and not deducted", "goods_id", id, "units", units)
	}
	return nil
}

// lockEpochs locks the rows of goods and returns their epochs. Without the index, small tables are read as a whole, and
// other rows are locked, too.
func lockEpochs(ctx context.Context, tx *sqlx.Tx, goods []int64, wait string) (epochs map[int64]int64, err error) {
	query, args, err := sqlx.In("SELECT goods_id, epoch FROM good_stock FORCE INDEX (good_stock_goods_id) WHERE goods_id IN (?) ORDER BY goods_id FOR UPDATE "+wait, goods)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		GoodsID int64 `db:"goods_id"`
		Epoch   int64
	}
	if err := tx.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, refusal(err)
	}
	epochs = map[int64]int64{}
	for _, row := range rows {
		epochs[row.GoodsID] = row.Epoch
	}
	return epochs, nil
}

// recorded says which sales are in stream_sale.
func recorded(ctx context.Context, db sqlx.QueryerContext, sales []sale) (map[saleKey]bool, error) {
	written := map[saleKey]bool{}
	for chunk := range slices.Chunk(sales, 1000) {
		args := make([]any, 0, 3*len(chunk))
		for _, s := range chunk {
			args = append(args, s.goodsID, s.entry, s.nonce)
		}
		rows, err := db.QueryxContext(ctx, "SELECT goods_id, entry, nonce FROM stream_sale WHERE (goods_id, entry, nonce) IN ("+
			strings.Repeat(", (?, ?, ?)", len(chunk))[2:]+")", args...)
		if err != nil {
			return nil, refusal(err)
		}
		for rows.Next() {
			var key saleKey
			if err := rows.Scan(&key.goodsID, &key.entry, &key.nonce); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			written[key] = true
		}
		if err := rows.Err(); err != nil {
			return nil, refusal(err)
		}
	}
	return written, nil
}

// trouble logs when something begins to fail and when it is over, and says how long to wait: longer each time.
type trouble struct {
	log   *slog.Logger
	what  string
	pause time.Duration
}

// tell returns nil for no error, and otherwise a channel to wait for.
func (t *trouble) tell(err error) <-chan time.Time {
	switch {
	case err == nil:
		if t.pause > 0 {
			t.log.Info("works again: " + t.what)
		}
		t.pause = 0
		return nil
	case t.pause == 0:
		t.log.Warn("cannot "+t.what+": trying again until it works", "error", err)
		t.pause = firstPause
	default:
		t.pause = min(2*t.pause, longestPause)
	}
	return time.After(t.pause)
}

// sale is an entry of a goods' stream.
type sale struct {
	goodsID int64
	entry   string
	nonce   int64
	units   int64
	epoch   int64 // of the stock that it was taken from
}

type saleKey struct {
	goodsID int64
	entry   string
	nonce   int64
}

func (s sale) key() saleKey { return saleKey{s.goodsID, s.entry, s.nonce} }

func byGoods(sales []sale) map[int64][]sale {
	goods := map[int64][]sale{}
	for _, s := range sales {
		goods[s.goodsID] = append(goods[s.goodsID], s)
	}
	return goods
}

// readSale reads what stream_sell.lua has written.
func readSale(goodsID int64, message redis.XMessage) (sale, error) {
	units, err := strconv.ParseInt(fmt.Sprint(message.Values["units"]), 10, 64)
	epoch, err2 := strconv.ParseInt(fmt.Sprint(message.Values["epoch"]), 10, 64)
	nonce, err3 := strconv.ParseInt(fmt.Sprint(message.Values["nonce"]), 10, 64)
	if err := cmp.Or(err, err2, err3); err != nil {
		return sale{}, fmt.Errorf("%s has entry %s with %v: %w", streamKey(goodsID), message.ID, message.Values, err)
	}
	return sale{goodsID, message.ID, nonce, units, epoch}, nil
}
