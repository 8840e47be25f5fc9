package catalogue

import (
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// mysqlStrategies leave exclusion to MySQL.
var mysqlStrategies = []stock.Strategy{
	on(stock.MySQL, "update", mysql.NewUpdate, oneStatement,
		"One conditional UPDATE that also returns the units left."),
	on(stock.MySQL, "for-update", mysql.NewForUpdate, rowLock,
		"Pessimistic locking: SELECT FOR UPDATE locks the row until the UPDATE is committed."),
	on(stock.MySQL, "optimistic-version", mysql.NewOptimisticVersion, optimisticLocking,
		"Optimistic locking: UPDATE if the version is still the one that was read, else queue and retry."),
	on(stock.MySQL, "optimistic-spin", mysql.NewOptimisticSpin, optimisticLocking,
		"As optimistic-version, but retries at once: without a queue, and without a pause."),
	control(on(stock.MySQL, "optimistic-timestamp", mysql.NewOptimisticTimestamp,
		exceptLate(losesUpdates, "but only within a second"),
		"As optimistic-version, with a timestamp of whole seconds instead of the version.")),
	on(stock.MySQL, "optimistic-timestamp-us", mysql.NewOptimisticTimestampMicros,
		exceptLate(optimisticLocking, "unless another strategy wrote twice in one microsecond"),
		"As optimistic-version, with a timestamp in microseconds that every write moves forward."),
	on(stock.MySQL, "optimistic-stock", mysql.NewOptimisticStock,
		exceptLate(optimisticLocking, "unless a restock has brought the same stock back (ABA)"),
		"As optimistic-version, with the stock itself instead of the version."),
	needing(on(stock.MySQL, "serializable", mysql.NewSerializable, rowLock,
		"Read-modify-write in a SERIALIZABLE transaction; the victim of a deadlock retries."),
		stock.NeedMySQL, stock.NeedInnoDB),
	on(stock.Slots, "slots", mysql.NewSlots,
		overlapping(rowLock, "but only while it sells from all rows together"),
		"The stock is split over 16 rows: a conditional UPDATE of one of them, or of all for the last units."),
	on(stock.Slots, "escrow", mysql.NewEscrow,
		overlapping(rowLock, "but only while it moves units between the rows"),
		"As batch, from one of 16 rows. Each replica has its own, and draws units from the others when it runs low."),
	needing(on(stock.Units, "units", mysql.NewUnits,
		overlapping(rowLock, "but only while it sells the last units, or more than 1000 at once"),
		"One row per unit, locked with SKIP LOCKED. If too few are free, the request looks again without it."),
		stock.NeedMySQL, stock.NeedInnoDB),
	on(stock.MySQL, "batch", mysql.NewBatch, oneStatement,
		"Group commit: requests that wait in a replica during a commit share the next one."),
	on(stock.MySQL, "reserve", mysql.NewReserve,
		but(rowLock, func(c *stock.Claim) {
			c.CrashCaveat = "but the units that the dead replica held are back only half a minute later"
			c.LateCaveat = "but only while it sells the last units or puts units back"
		}),
		"A reservation holds units until the buyer confirms, cancels, or lets it expire. Requests share commits, "+
			"as in batch."),
}
