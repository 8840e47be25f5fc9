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
// with the entry's id into stream_sale, and fails as a whole where there is one already. Entries are deleted after COMMIT; a
// replica that dies in between leaves entries that another one finds in stream_sale, and only deletes.
//
// Every goods has a stream of its own beside its stock, since in a Redis Cluster one script cannot reach two slots, and
// neither can one XREADGROUP. To block on all of them would take a connection a goods. In place of that, whoever sells
// rings: the replica reads the streams that it has sold into, all at once, and what is sold during one transaction
// goes into the next one. Nothing is asked while nothing is sold, but for a look at all streams every few seconds, by which
// the entries of replicas that died are found.
type writeBehind struct {
	db      mysqlStore
	streams streams
	log     *slog.Logger
	late    time.Duration // without an acknowledgement for so long, an entry is another replica's to write

	mu   sync.Mutex
	met  map[int64]bool // goods that are in the index, and have a consumer group
	rung map[int64]bool // goods that something may have been sold of

	bell chan struct{} // has room for one: something is in rung
	stop context.CancelFunc
	cut  context.CancelFunc
	done chan struct{}
}

const (
	// A transaction takes up to so many entries of so many goods: a few hundred kilobytes.
	entriesATime = 256
	goodsATime   = 16
	// lookAround is the longest pause between two looks at all streams.
	lookAround = 5 * time.Second
	// Pauses after a failure.
	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	// lastWords is the time that Close leaves for the transaction under way.
	lastWords = 2 * time.Second
)

// startWriteBehind begins to write, from all streams that there are.
func startWriteBehind(d Deps) *writeBehind {
	w := &writeBehind{
		db: mysqlStore{d.MySQL}, streams: streams{d.Redis}, log: d.Log, late: lookAround,
		met: map[int64]bool{}, rung: map[int64]bool{}, bell: make(chan struct{}, 1), done: make(chan struct{}),
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

// Close lets the transaction under way come to its end, for two seconds at most, and begins no other.
func (w *writeBehind) Close() error {
	w.stop()
	limit := time.AfterFunc(lastWords, w.cut)
	defer limit.Stop()
	<-w.done
	w.cut()
	return nil
}

// meet makes sure, before the first sale of a goods, that every replica will look at its stream. It fails as
// store.read does.
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

// next takes goods that were rung for.
func (w *writeBehind) next() (goods []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.rung {
		if len(goods) == goodsATime {
			break
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
	around := time.NewTicker(w.late)
	defer around.Stop()
	reading := trouble{log: w.log, what: "read the sales of redis-stream"}
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
	indexed, err := w.streams.goods(working)
	if err != nil {
		return err
	}
	w.mu.Lock()
	lost := maps.Clone(w.met)
	for _, id := range indexed {
		w.met[id] = true
		delete(lost, id)
	}
	goods := slices.Collect(maps.Keys(w.met))
	w.mu.Unlock()
	for id := range lost {
		err = cmp.Or(err, w.streams.open(working, id))
	}
	lengths, _, failed := w.streams.lengths(working, goods)
	var waiting []int64
	for id, n := range lengths {
		if n > 0 {
			waiting = append(waiting, id)
		}
	}
	if len(waiting) > 0 {
		w.ring(waiting...)
	}
	overdue := func(ctx context.Context, pipe redis.Pipeliner, goodsID int64) func() ([]redis.XMessage, error) {
		return w.streams.overdue(ctx, pipe, goodsID, w.late)
	}
	for chunk := range slices.Chunk(waiting, goodsATime) {
		if stopped.Err() == nil {
			failed = cmp.Or(failed, w.pass(stopped, working, chunk, overdue))
		}
	}
	return cmp.Or(err, failed)
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
				continue
			}
			sales = append(sales, s)
		}
		if len(messages) == entriesATime {
			w.ring(id) // there may be more
		}
	}
	if len(sales) == 0 {
		return err
	}
	left := sales
	done := w.insist(stopped, "write the sales of redis-stream to MySQL", func() (err error) {
		left, err = w.write(working, left)
		return err
	}) && w.insist(stopped, "delete the sales of redis-stream that are in MySQL from their streams", func() error {
		return w.streams.remove(working, sales)
	})
	if !done {
		w.log.Info("stopped: sales of redis-stream wait for another replica, or for the next start", "sales", len(sales))
	}
	return err
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
// others.
func (w *writeBehind) write(ctx context.Context, sales []sale) (left []sale, err error) {
	if len(sales) == 0 {
		return nil, nil
	}
	err = w.db.inTx(ctx, nil, Request{}, func(tx *sqlx.Tx) error { return w.record(ctx, tx, sales) })
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
	return w.write(ctx, left)
}

// record inserts sales and deducts them, goods in ascending order, so that no two replicas wait for each other. Whatever is
// left of the stock, the sale was made.
func (w *writeBehind) record(ctx context.Context, tx *sqlx.Tx, sales []sale) error {
	type source struct{ goodsID, epoch int64 }
	sold := map[source]int64{}
	args := make([]any, 0, 4*len(sales))
	for _, s := range sales {
		args = append(args, s.goodsID, s.entry, s.units, s.epoch)
		sold[source{s.goodsID, s.epoch}] += s.units
	}
	rows := strings.Repeat(", (?, ?, ?, ?)", len(sales))[2:]
	if _, err := tx.ExecContext(ctx, "INSERT INTO stream_sale (goods_id, entry, units, epoch) VALUES "+rows, args...); err != nil {
		return refusal(err)
	}
	sources := slices.SortedFunc(maps.Keys(sold), func(a, b source) int {
		return cmp.Or(cmp.Compare(a.goodsID, b.goodsID), cmp.Compare(a.epoch, b.epoch))
	})
	for _, from := range sources {
		result, err := tx.ExecContext(ctx, "UPDATE good_stock SET stock = stock - ?, version = version + 1 WHERE goods_id = ? AND epoch = ?",
			sold[from], from.goodsID, from.epoch)
		if err != nil {
			return refusal(err)
		}
		if n, err := result.RowsAffected(); err == nil && n == 0 {
			w.log.Warn("sales were made from a stock that is not MySQL's: they are in stream_sale, and not deducted",
				"goods_id", from.goodsID, "units", sold[from], "epoch", from.epoch)
		}
	}
	return nil
}

// recorded says which sales are in stream_sale.
func recorded(ctx context.Context, db sqlx.QueryerContext, sales []sale) (map[saleKey]bool, error) {
	written := map[saleKey]bool{}
	for chunk := range slices.Chunk(sales, 1000) {
		args := make([]any, 0, 2*len(chunk))
		for _, s := range chunk {
			args = append(args, s.goodsID, s.entry)
		}
		rows, err := db.QueryxContext(ctx, "SELECT goods_id, entry FROM stream_sale WHERE (goods_id, entry) IN ("+
			strings.Repeat(", (?, ?)", len(chunk))[2:]+")", args...)
		if err != nil {
			return nil, refusal(err)
		}
		for rows.Next() {
			var key saleKey
			if err := rows.Scan(&key.goodsID, &key.entry); err != nil {
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
	units   int64
	epoch   int64 // of the stock that it was taken from
}

type saleKey struct {
	goodsID int64
	entry   string
}

func (s sale) key() saleKey { return saleKey{s.goodsID, s.entry} }

// readSale reads what stream_sell.lua has written.
func readSale(goodsID int64, message redis.XMessage) (sale, error) {
	units, err := strconv.ParseInt(fmt.Sprint(message.Values["units"]), 10, 64)
	epoch, err2 := strconv.ParseInt(fmt.Sprint(message.Values["epoch"]), 10, 64)
	if err := cmp.Or(err, err2); err != nil {
		return sale{}, fmt.Errorf("%s has entry %s with %v: %w", streamKey(goodsID), message.ID, message.Values, err)
	}
	return sale{goodsID, message.ID, units, epoch}, nil
}
