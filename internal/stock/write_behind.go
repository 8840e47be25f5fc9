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
// Nothing is tried twice with what was delivered once: what cannot be written is left, and delivered again after a while, as
// if this replica had died. Until then its goods is failed, and only the look at all streams rings for it.
//
// No goods waits for another. A transaction takes the sales of several only where it finds none of their rows locked; where
// it does, each goods is written by itself, and one whose own row is locked waits for it apart from all others.
type writeBehind struct {
	db      mysqlStore
	streams streams
	log     *slog.Logger
	late    time.Duration // without an acknowledgement for so long, an entry is another replica's to write
	hold    time.Duration // after its delivery, an entry is not written

	mu     sync.Mutex
	met    map[int64]bool   // goods that have a consumer group, and belong into the index
	rung   map[int64]bool   // goods that something may have been sold of
	claims map[int64]string // goods that have entries to take over, and where to go on with that
	failed map[int64]error  // why the sales of a goods could not be carried over when that was last tried
	apart  map[int64]bool   // goods that wait for their row

	loops sync.WaitGroup // and the goods that wait for their row
	tries chan struct{}  // bounds how many of them wait at a time
	swept time.Time      // when all goods of MySQL were looked at

	bell chan struct{} // has room for one: something is in rung
	stop context.CancelFunc
	cut  context.CancelFunc
}

const (
	// A transaction takes up to so many entries of so many goods: a few hundred kilobytes.
	entriesATime = 256
	goodsATime   = 16
	// As many goods whose row is locked are waited for at a time, with a connection to MySQL each.
	apartATime = 8
	// lookAround is the longest pause between two looks at all streams that the index names.
	lookAround = 5 * time.Second
	// longestHold is longer than any wait for MySQL, and a small part of what PruneStream leaves.
	longestHold = time.Minute
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
		db: mysqlStore{d.MySQL}, streams: streams{d.Redis}, log: d.Log, late: lookAround, hold: longestHold,
		met: map[int64]bool{}, rung: map[int64]bool{}, claims: map[int64]string{}, failed: map[int64]error{}, apart: map[int64]bool{},
		tries: make(chan struct{}, apartATime), bell: make(chan struct{}, 1),
	}
	if 0 < d.Lease && d.Lease < w.late {
		w.late = d.Lease
	}
	stopped, stop := context.WithCancel(context.Background())
	working, cut := context.WithCancel(context.Background())
	w.stop, w.cut = stop, cut
	w.loops.Go(func() { w.write(stopped, working) })
	w.loops.Go(func() { w.watch(stopped, working) })
	return w
}

// Close lets the transactions under way come to their end, for two seconds at most, and begins no other.
func (w *writeBehind) Close() error {
	w.stop()
	limit := time.AfterFunc(lastWords, w.cut)
	defer limit.Stop()
	w.loops.Wait()
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

// ring says that something may have been sold. What failed before waits for the next look at all streams: buyers of a goods
// whose master is silent must not bring everybody to wait for it, time and again.
func (w *writeBehind) ring(goodsID int64) {
	w.mu.Lock()
	if w.failed[goodsID] == nil {
		w.rung[goodsID] = true
	}
	w.mu.Unlock()
	w.wake()
}

func (w *writeBehind) wake() {
	select {
	case w.bell <- struct{}{}:
	default: // it rings already
	}
}

// next takes goods that were rung for and do not wait for their row.
func (w *writeBehind) next() (goods []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.rung {
		if len(goods) == goodsATime {
			w.wake()
			break
		}
		if w.apart[id] {
			continue // until it is done
		}
		goods = append(goods, id)
		delete(w.rung, id)
	}
	slices.Sort(goods) // replicas that write the same entries wait for each other in one order
	return goods
}

// tell notes what became of the last sales of a goods.
func (w *writeBehind) tell(goodsID int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.failed[goodsID] = err
		delete(w.rung, goodsID)
	case w.failed[goodsID] != nil:
		delete(w.failed, goodsID)
		w.rung[goodsID] = true // nobody could ring meanwhile
		w.wake()
	}
}

// write carries over what was rung for, until stopped ends. What it does by then is broken off when working ends.
func (w *writeBehind) write(stopped, working context.Context) {
	for stopped.Err() == nil {
		select {
		case <-stopped.Done():
		case <-w.bell:
			w.pass(stopped, working, w.next())
		}
	}
}

// watch looks around from time to time, whatever is sold meanwhile: sooner after a failure, which it logs.
func (w *writeBehind) watch(stopped, working context.Context) {
	around := time.NewTicker(w.late)
	defer around.Stop()
	writing := trouble{log: w.log, what: "write the sales of redis-stream to MySQL"}
	for stopped.Err() == nil {
		again := writing.tell(w.lookAround(working))
		select {
		case <-stopped.Done():
		case <-around.C:
		case <-again:
		}
	}
}

// lookAround finds the streams that are not empty, and rings for them. What other replicas have not acknowledged in time is
// taken over then. It also brings back the index, for the case that Redis has lost it. The error is why some goods are
// failed, or the index is.
func (w *writeBehind) lookAround(working context.Context) error {
	goods, sweeping, err := w.find(working)
	lengths, _, silent := w.streams.lengths(working, goods)
	w.mu.Lock()
	for _, id := range goods {
		switch n, answered := lengths[id]; {
		case !answered:
			w.failed[id] = cmp.Or(w.failed[id], silent)
			delete(w.rung, id)
		case n == 0:
			delete(w.failed, id)
			if sweeping {
				delete(w.met, id) // until it is sold again
			}
		default:
			w.met[id] = true // it belongs into the index
			w.claims[id] = cmp.Or(w.claims[id], "0-0")
			w.rung[id] = true
		}
		err = cmp.Or(err, w.failed[id])
	}
	w.mu.Unlock()
	w.wake()
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
	return slices.Sorted(maps.Keys(found)), sweeping, err
}

// pass writes what is delivered of some goods to MySQL, and deletes it from the streams. What others have not acknowledged
// in time comes before what is new.
func (w *writeBehind) pass(stopped, working context.Context, goods []int64) {
	if len(goods) == 0 {
		return
	}
	delivered := time.Now().Round(0) // by the wall clock: the monotonic one stands still while the machine sleeps
	replies := make([]func() (delivery, error), len(goods))
	w.mu.Lock()
	claims := maps.Clone(w.claims)
	w.mu.Unlock()
	_, _ = w.streams.client.Pipelined(working, func(pipe redis.Pipeliner) error {
		for i, id := range goods {
			if from, overdue := claims[id]; overdue {
				replies[i] = w.streams.overdue(working, pipe, id, w.late, from)
			} else {
				replies[i] = w.streams.unread(working, pipe, id)
			}
		}
		return nil
	})
	var sales []sale
	for i, id := range goods {
		got, err := replies[i]()
		if redis.HasErrorPrefix(err, "NOGROUP") { // Redis has lost its data
			if err = w.streams.open(working, id); err == nil {
				w.goOn(id, "")
				continue
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			w.tell(id, fmt.Errorf("read the sales of goods %d: %w", id, redisUnwritten(err)))
			continue
		}
		for _, message := range got.messages {
			s, unreadable := readSale(id, message)
			if unreadable != nil {
				w.log.Error("an entry in a stream of sales was not written by redis-stream: it stays there", "error", unreadable)
				_ = w.streams.park(working, id, message.ID) // or else it comes again
				continue
			}
			sales = append(sales, s)
		}
		if _, overdue := claims[id]; overdue || len(got.messages) == entriesATime {
			w.goOn(id, got.next)
		}
	}
	w.settle(stopped, working, sales, delivered)
}

// goOn rings for a goods that may have more to deliver: from a place on, what is to be taken over; or what is new.
func (w *writeBehind) goOn(goodsID int64, from string) {
	w.mu.Lock()
	if delete(w.claims, goodsID); from != "" {
		w.claims[goodsID] = from
	}
	w.rung[goodsID] = true
	w.mu.Unlock()
	w.wake()
}

// settle writes sales to MySQL and deletes them from their streams.
func (w *writeBehind) settle(stopped, working context.Context, sales []sale, delivered time.Time) {
	if len(sales) == 0 {
		return
	}
	goods := byGoods(sales)
	err := w.record(working, sales, delivered, "NOWAIT")
	switch {
	case err == nil:
		w.remove(working, sales)
		return
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknown):
		for id := range goods {
			w.tell(id, fmt.Errorf("write to MySQL: %w", err))
		}
		return
	}
	// A row is locked, or one of the goods has something that MySQL does not take: the others must not wait.
	for _, id := range slices.Sorted(maps.Keys(goods)) {
		if len(goods) > 1 {
			err = w.record(working, goods[id], delivered, "NOWAIT")
		}
		switch {
		case err == nil:
			w.remove(working, goods[id])
		case errors.Is(err, ErrBusy):
			w.await(stopped, working, id, goods[id], delivered)
		default:
			w.tell(id, fmt.Errorf("write the sales of goods %d to MySQL: %w", id, err))
		}
	}
}

// await settles the sales of one goods when its row is free, beside all others.
func (w *writeBehind) await(stopped, working context.Context, goodsID int64, sales []sale, delivered time.Time) {
	w.mu.Lock()
	w.apart[goodsID] = true
	w.mu.Unlock()
	w.loops.Go(func() {
		select {
		case <-stopped.Done():
			return
		case w.tries <- struct{}{}:
		}
		err := w.record(working, sales, delivered, "")
		<-w.tries
		if err == nil {
			w.remove(working, sales)
		} else {
			w.tell(goodsID, fmt.Errorf("write the sales of goods %d to MySQL: %w", goodsID, err))
		}
		w.mu.Lock()
		delete(w.apart, goodsID)
		w.mu.Unlock()
		w.wake()
	})
}

// remove deletes sales that are in MySQL. What cannot be deleted is delivered again, and found there.
func (w *writeBehind) remove(working context.Context, sales []sale) {
	for id, err := range w.streams.remove(working, sales) {
		if err != nil {
			err = fmt.Errorf("delete sales of goods %d that are in MySQL: %w", id, redisWritten(err))
		}
		w.tell(id, err)
	}
}

// record writes sales to MySQL in one transaction, but for those that are there already. It waits for rows that are locked,
// or with NOWAIT fails with ErrBusy.
func (w *writeBehind) record(ctx context.Context, sales []sale, delivered time.Time, wait string) error {
	if len(sales) == 0 {
		return nil
	}
	err := w.db.inTx(ctx, readCommitted, Request{}, func(tx *sqlx.Tx) error { return w.deduct(ctx, tx, sales, delivered, wait) })
	var server *mysql.MySQLError
	if !errors.As(err, &server) || server.Number != erDupEntry {
		return err
	}
	written, failed := recorded(ctx, w.db.db, sales)
	if failed != nil {
		return failed
	}
	left := slices.DeleteFunc(slices.Clone(sales), func(s sale) bool { return written[s.key()] })
	if len(left) == len(sales) {
		return err
	}
	return w.record(ctx, left, delivered, wait)
}

// deduct locks the rows of the goods, in ascending order, so that no two replicas wait for each other; inserts the sales; and
// deducts those that were made from the stock that MySQL has. Whatever is left of it, the sale was made.
//
// It fails where the sales were delivered too long ago: another replica may have written them since, and PruneStream may have
// forgotten that. The clock is read after the INSERT: from there on no other can write them, however long this replica
// is suspended.
func (w *writeBehind) deduct(ctx context.Context, tx *sqlx.Tx, sales []sale, delivered time.Time, wait string) error {
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
	if held := time.Now().Round(0).Sub(delivered); held > w.hold {
		return fmt.Errorf("they were held for %v before they could be written, and are left for another delivery", held)
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
