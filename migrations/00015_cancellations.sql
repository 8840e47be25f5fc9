-- A sale can be cancelled by its key, as a whole or in part. Its row in the ledger tells how many of its units were
-- cancelled, and how many of these were put back into the stock, which has the epoch of the sale then. guard is the
-- strategy under whose lock it was sold, if nothing else keeps others from overwriting the stock: only this strategy
-- can put units back safely.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds a column only if it is missing, so that the migration
-- can run again: see 00001.

-- +goose Up
SET @add_cancelled = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE ledger ADD COLUMN buyer VARBINARY(64) NOT NULL DEFAULT '''', ADD COLUMN cancelled INT NOT NULL DEFAULT 0, ADD COLUMN given_back INT NOT NULL DEFAULT 0, ADD COLUMN guard VARBINARY(64) NOT NULL DEFAULT ''''', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'ledger' AND column_name = 'cancelled'
);
PREPARE add_cancelled FROM @add_cancelled;
EXECUTE add_cancelled;
DEALLOCATE PREPARE add_cancelled;

-- The outcome 'cancelled' is that of a key under which nothing was sold, and nothing may be sold any more: because its
-- request was refused and then cancelled, or because the cancellation came first. Then the item is 0.
ALTER TABLE ledger MODIFY COLUMN outcome ENUM('done', 'sold-out', 'buyer-limit', 'cancelled') NOT NULL;

-- +goose Down
DELETE FROM ledger WHERE outcome = 'cancelled';
ALTER TABLE ledger MODIFY COLUMN outcome ENUM('done', 'sold-out', 'buyer-limit') NOT NULL;
ALTER TABLE ledger DROP COLUMN guard, DROP COLUMN given_back, DROP COLUMN cancelled, DROP COLUMN buyer;
