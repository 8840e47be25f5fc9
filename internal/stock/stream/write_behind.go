package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// writeBehind writes the sales of redis-stream to MySQL, each exactly once. Every replica has one. They share a
// consumer group for each stream: an entry is delivered to one replica, and again to another if it is not
// acknowledged in time (XAUTOCLAIM).
//
// Delivery is at least once. It becomes exactly once in MySQL: the transaction that deducts from good_stock inserts a
// row with the entry's id and random number into stream_sale, and fails as a whole if there is such a row already.
// Entries are deleted after COMMIT. If a replica dies in between, another one finds the sales in stream_sale and only
// deletes the entries.
//
// Every item has a stream of its own beside its stock: in a Redis Cluster, neither a script nor an XREADGROUP can
// reach two hash slots. Blocking on all streams would take a connection for each item. Instead, each sale notifies
// the writer of its replica, which reads all streams with new sales in one pipeline. Sales during one transaction go
// into the next one. An idle replica sends no commands except for a scan of the streams in the index every few seconds,
// which finds the entries of replicas that died. A stream that has been idle for a minute is deleted, and the next sale
// makes it again: see tidy.
//
// What cannot be written is left alone and delivered again later, as if this replica had died. Until then the item
// counts as failed, and only the scan makes it pending again.
//
// No item waits for another. A transaction takes the sales of several items only if none of their rows is locked.
// Otherwise each item is written by itself, and an item whose own row is locked waits for it in a goroutine of its
// own.
type writeBehind struct {
	db      mysql.Store
	streams streams
	log     *slog.Logger
	late    time.Duration // an entry unacknowledged for this long may be taken over by any replica
	maxAge  time.Duration // an entry delivered longer ago than this is not written
	items   schedule

	running sync.WaitGroup // the loops, and the items that wait for their row
	waiters chan struct{}  // bounds how many items wait for their row at a time

	// Only the scan uses these.
	swept time.Time // when it last included all items of MySQL
	quiet map[int64]quiet

	stop  context.CancelFunc // begins no more transactions
	abort context.CancelFunc // ends those under way
}

const (
	// itemsPerWrite and entriesPerRead together bound a transaction to a few hundred kilobytes.
	itemsPerWrite = 16
	// maxWaiters is how many items wait for a locked row at a time, each with a connection to MySQL.
	maxWaiters = 8
	// scanInterval is the longest pause between two scans of the streams in the index.
	scanInterval = 5 * time.Second
	// scansUntilIdle is after how many scans without a sale a stream is closed: a minute.
	scansUntilIdle = 12
	// sweepInterval is the pause between two scans that include all items of MySQL. They find an item that is missing
	// in the index because Redis has lost a write, and the replicas that knew of it have died.
	sweepInterval = 10 * time.Minute
	// sweepWithoutIndex is the same pause while the index cannot be read.
	sweepWithoutIndex = time.Minute
	// maxEntryAge is how long after its delivery an entry may be written: longer than any wait for MySQL, and much
	// shorter than the age at which Prune deletes records.
	maxEntryAge = time.Minute
	// closeLimit is the time that Close gives the transaction under way.
	closeLimit = 2 * time.Second
)

// startWriteBehind begins to write, from all streams that exist.
func startWriteBehind(d stock.Deps) *writeBehind {
	w := &writeBehind{
		db: mysql.New(d), streams: streams{redis.New(d)}, log: d.Log,
		late: scanInterval, maxAge: maxEntryAge,
		items: newSchedule(), waiters: make(chan struct{}, maxWaiters),
	}
	if 0 < d.Lease && d.Lease < w.late {
		w.late = d.Lease
	}
	stopped, stop := context.WithCancel(context.Background())
	working, abort := context.WithCancel(context.Background())
	w.stop, w.abort = stop, abort
	w.running.Go(func() { w.writeLoop(stopped, working) })
	w.running.Go(func() { w.scanLoop(stopped, working) })
	return w
}

// Close finishes the transactions under way, for at most two seconds.
func (w *writeBehind) Close() error {
	w.stop()
	limit := time.AfterFunc(closeLimit, w.abort)
	defer limit.Stop()
	w.running.Wait()
	w.abort()
	return nil
}

// notify reports that units of an item may have been sold.
func (w *writeBehind) notify(goodsID int64) { w.items.notify(goodsID) }

// writeLoop writes the sales of pending items until stopped ends. Writing under way is aborted when working ends.
func (w *writeBehind) writeLoop(stopped, working context.Context) {
	for stopped.Err() == nil {
		select {
		case <-stopped.Done():
		case <-w.items.wake:
			w.writePending(stopped, working, w.items.next())
		}
	}
}

// scanLoop scans from time to time: sooner after a failure, which it logs.
func (w *writeBehind) scanLoop(stopped, working context.Context) {
	ticker := time.NewTicker(w.late)
	defer ticker.Stop()
	outage := outage{log: w.log, task: "write the sales of redis-stream to MySQL"}
	for stopped.Err() == nil {
		retry := outage.report(w.scan(working))
		select {
		case <-stopped.Done():
		case <-ticker.C:
		case <-retry:
		}
	}
}

// scan finds the streams that are not empty and makes their items pending, so that overdue entries of other replicas
// are taken over. Then it tidies up. Its error is why the sales of some item cannot be written, or why the index cannot
// be read or written.
func (w *writeBehind) scan(working context.Context) error {
	ids, indexed, err := w.findItems(working)
	found, silent := w.streams.inspect(working, ids)
	silent = cmp.Or(silent, w.addGroups(working, found))
	err = cmp.Or(err, w.items.update(ids, found, silent))
	if indexed == nil {
		return err
	}
	return cmp.Or(err, w.tidy(working, indexed, found))
}

// findItems lists the items whose streams are to be scanned: those in the index and those that are open here; and the
// other items of MySQL that have a stream, if it is time to sweep. If the index cannot be read, indexed is nil.
func (w *writeBehind) findItems(ctx context.Context) (ids []int64, indexed map[int64]bool, err error) {
	listed, err := w.streams.indexed(ctx)
	pause := sweepWithoutIndex
	if err == nil {
		pause, indexed = sweepInterval, map[int64]bool{}
		for _, id := range listed {
			indexed[id] = true
		}
	}
	ids = slices.Concat(listed, w.items.beginScan())
	if time.Since(w.swept) > pause {
		ids = append(ids, w.sweep(ctx)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), indexed, err
}

// sweep lists the items of MySQL that have a stream, a page at a time: there may be millions without one, which must
// not cost memory. A failure of MySQL, or of a Redis server, is reported when there is something to write.
func (w *writeBehind) sweep(ctx context.Context) (found []int64) {
	last := int64(math.MinInt64)
	for {
		page, err := w.db.ItemsAfter(ctx, last, streamsPerCall)
		if err != nil {
			return found
		}
		found = append(found, w.streams.existing(ctx, page)...)
		if len(page) < streamsPerCall {
			w.swept = time.Now()
			return found
		}
		last = page[len(page)-1]
	}
}

// addGroups gives streams with entries their consumer group, if Redis has lost it. It removes those that it cannot read
// from what was found.
func (w *writeBehind) addGroups(working context.Context, found map[int64]condition) (err error) {
	for id, stream := range found {
		if stream.entries == 0 || stream.grouped {
			continue
		}
		if failed := w.streams.OpenStream(working, id); failed != nil {
			err = cmp.Or(err, failed)
			delete(found, id)
		}
	}
	return err
}

// tidy makes the index agree with the streams that were found, and closes idle ones, so that only items with a stream
// in the index cost anything. The item of a stream that is closed now leaves the index with the next scan.
func (w *writeBehind) tidy(working context.Context, indexed map[int64]bool, found map[int64]condition) error {
	var lost, gone []int64
	for id, stream := range found {
		switch {
		case stream.exists && !indexed[id]:
			lost = append(lost, id)
		case !stream.exists && indexed[id]:
			gone = append(gone, id)
		}
	}
	return cmp.Or(
		w.streams.IndexStreams(working, lost...),
		w.streams.unindex(working, gone),
		w.streams.close(working, w.findIdle(found)),
	)
}

// quiet tells how long a stream has been empty without getting an entry.
type quiet struct {
	last  string // id of the newest entry ever
	scans int
}

// findIdle lists the streams that got no entry and were empty in the last scansUntilIdle scans.
func (w *writeBehind) findIdle(found map[int64]condition) (idle []int64) {
	before := w.quiet
	w.quiet = map[int64]quiet{}
	for id, stream := range found {
		if !stream.exists || stream.entries > 0 {
			continue
		}
		now := quiet{stream.last, 1}
		if was := before[id]; was.last == now.last {
			now.scans += was.scans
		}
		w.quiet[id] = now
		if now.scans >= scansUntilIdle {
			idle = append(idle, id)
		}
	}
	return idle
}

// writePending writes what is delivered for some items to MySQL, and deletes it from the streams.
func (w *writeBehind) writePending(stopped, working context.Context, ids []int64) {
	if len(ids) == 0 {
		return
	}
	delivered := time.Now().Round(0) // the wall clock: the monotonic one stands still while the machine is suspended
	sales := w.read(working, ids)
	if len(sales) == 0 {
		return
	}
	items := byItem(sales)
	err := w.record(working, sales, delivered, failIfLocked)
	switch {
	case err == nil:
		w.remove(working, sales)
		return
	case errors.Is(err, stock.ErrUnavailable), errors.Is(err, stock.ErrUnknown):
		for id := range items {
			w.items.setResult(id, fmt.Errorf("write to MySQL: %w", err))
		}
		return
	}
	// A row is locked, or MySQL does not accept something of one item: the others must not wait.
	for _, id := range slices.Sorted(maps.Keys(items)) {
		if len(items) > 1 {
			err = w.record(working, items[id], delivered, failIfLocked)
		}
		if errors.Is(err, stock.ErrBusy) {
			w.recordWhenFree(stopped, working, id, items[id], delivered)
		} else {
			w.finish(working, id, items[id], err)
		}
	}
}

// read reads the delivered entries of some items. Overdue entries of other replicas come before new ones.
func (w *writeBehind) read(working context.Context, ids []int64) (sales []sale) {
	replies := make([]func() (delivery, error), len(ids))
	takeOvers := w.items.takeOvers()
	w.streams.Pipelined(working, func(pipe goredis.Pipeliner) error {
		for i, id := range ids {
			if from, overdue := takeOvers[id]; overdue {
				replies[i] = w.streams.takeOver(working, pipe, id, w.late, from)
			} else {
				replies[i] = w.streams.readNew(working, pipe, id)
			}
		}
		return nil
	})
	for i, id := range ids {
		got, err := replies[i]()
		if goredis.HasErrorPrefix(err, "NOGROUP") { // closed by another replica; if Redis has lost the group, see scan
			w.items.skip(id)
			continue
		}
		if err != nil && !errors.Is(err, goredis.Nil) {
			w.items.setResult(id, fmt.Errorf("read the sales of item %d: %w", id, redis.Refusal(err)))
			continue
		}
		sales = append(sales, w.parse(working, id, got.messages)...)
		if _, overdue := takeOvers[id]; overdue || len(got.messages) == entriesPerRead {
			w.items.continueFrom(id, got.next)
		}
	}
	return sales
}

// parse reads the sales in entries. Entries that are not sales are logged and parked.
func (w *writeBehind) parse(working context.Context, goodsID int64, entries []goredis.XMessage) (sales []sale) {
	for _, entry := range entries {
		s, err := readSale(goodsID, entry)
		if err != nil {
			w.log.Error("an entry in a stream of sales is not a sale of redis-stream: it stays there unwritten", "error", err)
			_ = w.streams.park(working, goodsID, entry.ID) // if it fails, the entry is delivered again
			continue
		}
		sales = append(sales, s)
	}
	return sales
}

// recordWhenFree waits in the background until the row of one item is free, and then writes its sales.
func (w *writeBehind) recordWhenFree(
	stopped, working context.Context, goodsID int64, sales []sale, delivered time.Time,
) {
	w.items.beginWait(goodsID)
	w.running.Go(func() {
		select {
		case <-stopped.Done():
			return
		case w.waiters <- struct{}{}:
		}
		err := w.record(working, sales, delivered, waitForRows)
		<-w.waiters
		w.finish(working, goodsID, sales, err)
		w.items.endWait(goodsID)
	})
}

// finish deletes the sales of an item that were recorded, or notes why they were not.
func (w *writeBehind) finish(working context.Context, goodsID int64, sales []sale, err error) {
	if err != nil {
		w.items.setResult(goodsID, fmt.Errorf("write the sales of item %d to MySQL: %w", goodsID, err))
		return
	}
	w.remove(working, sales)
}

// remove deletes sales that are in MySQL from their streams. Those that cannot be deleted are delivered again and
// found in MySQL.
func (w *writeBehind) remove(working context.Context, sales []sale) {
	for id, err := range w.streams.remove(working, sales) {
		if err != nil {
			err = fmt.Errorf("delete sales of item %d that are in MySQL: %w", id, redis.Refusal(err))
		}
		w.items.setResult(id, err)
	}
}
