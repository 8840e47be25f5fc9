package catalogue

import (
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// mysqlStrategies leave exclusion to MySQL.
var mysqlStrategies = []stock.Strategy{
	{
		Name:     "update",
		Formerly: "ledger",
		Summary:  "One conditional UPDATE that also returns the units left.",
		Claim:    onBuyerLimit(oneStatement, stock.BuyerLimitIsKept),
		Stores:   []stock.Store{stock.MySQL},
		New:      mysql.NewUpdate,
	},
	{
		Name:    "for-update",
		Summary: "Pessimistic locking: SELECT FOR UPDATE locks the row until the UPDATE is committed.",
		Claim:   rowLock,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewForUpdate,
	},
	{
		Name:    "optimistic-version",
		Summary: "Optimistic locking: UPDATE if the version is still the one that was read, else queue and retry.",
		Claim:   optimisticLocking,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewOptimisticVersion,
	},
	{
		Name:    "optimistic-spin",
		Summary: "As optimistic-version, but retries at once: without a queue, and without a pause.",
		Claim:   optimisticLocking,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewOptimisticSpin,
	},
	{
		Name:    "optimistic-timestamp",
		NoKeys:  asPeopleWriteIt,
		Summary: "As optimistic-version, with a timestamp of whole seconds instead of the version.",
		Claim:   exceptLate(losesUpdates, "but only within a second"),
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewOptimisticTimestamp,
	},
	{
		Name:    "optimistic-timestamp-us",
		Summary: "As optimistic-version, with a timestamp in microseconds that every write moves forward.",
		Claim: exceptLate(optimisticLocking,
			"unless another strategy wrote twice in one microsecond"),
		Stores: []stock.Store{stock.MySQL},
		New:    mysql.NewOptimisticTimestampMicros,
	},
	{
		Name:    "optimistic-stock",
		Summary: "As optimistic-version, with the stock itself instead of the version.",
		Claim: exceptLate(optimisticLocking,
			"unless a restock has brought the same stock back (ABA)"),
		Stores: []stock.Store{stock.MySQL},
		New:    mysql.NewOptimisticStock,
	},
	{
		Name:    "serializable",
		Summary: "Read-modify-write in a SERIALIZABLE transaction; the victim of a deadlock retries.",
		Claim:   rowLock,
		Stores:  []stock.Store{stock.MySQL},
		Needs:   []stock.Need{stock.NeedMySQL, stock.NeedInnoDB},
		New:     mysql.NewSerializable,
	},
	{
		Name:    "update-check-first",
		Summary: "As update, but checks a buyer's limit before it locks the item.",
		Claim:   onBuyerLimit(oneStatement, stock.BuyerLimitIsExceeded),
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewUpdateCheckFirst,
	},
	{
		Name:    "slots",
		Summary: "The stock is split over 16 rows: a conditional UPDATE of one of them, or of all for the last units.",
		Claim: exceptLate(overlapping(rowLock),
			"but only while it sells from all rows together"),
		Stores: []stock.Store{stock.Slots},
		New:    mysql.NewSlots,
	},
	{
		Name:    "escrow",
		Summary: "As batch, from one of 16 rows. Each replica has its own, and draws units from the others when it runs low.",
		Claim: exceptLate(overlapping(rowLock),
			"but only while it moves units between the rows"),
		Stores: []stock.Store{stock.Slots},
		New:    mysql.NewEscrow,
	},
	{
		Name:    "units",
		Summary: "One row per unit, locked with SKIP LOCKED. If too few are free, the request looks again without it.",
		Claim: exceptLate(overlapping(rowLock),
			"but only while it sells the last units, or more than 1000 at once"),
		Stores: []stock.Store{stock.Units},
		Needs:  []stock.Need{stock.NeedMySQL, stock.NeedInnoDB},
		New:    mysql.NewUnits,
	},
	{
		Name:     "batch",
		Formerly: "batch-ledger",
		Summary:  "Group commit: requests that wait in a replica during a commit share the next one.",
		Claim:    onBuyerLimit(oneStatement, stock.BuyerLimitIsKept),
		Stores:   []stock.Store{stock.MySQL},
		New:      mysql.NewBatch,
	},
	{
		Name: "reserve",
		Summary: "A reservation holds units until the buyer confirms, cancels, or lets it expire. Requests share commits, " +
			"as in batch.",
		Claim: exceptLate(returningLater(rowLock),
			"but only while it sells the last units or puts units back"),
		Stores: []stock.Store{stock.MySQL},
		New:    mysql.NewReserve,
	},
}
