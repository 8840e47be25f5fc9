-- An idempotency key with every strategy: the ledger tells from which stock a sale was made, and from which epoch of it,
-- so that its units can be put back there. Rows of earlier versions have the epoch 0.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds a column only if it is missing, so that the migration
-- can run again: see 00001.

-- +goose Up
SET @add_store = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE ledger ADD COLUMN store ENUM(''mysql'', ''slots'', ''units'') NOT NULL DEFAULT ''mysql'', ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'ledger' AND column_name = 'store'
);
PREPARE add_store FROM @add_store;
EXECUTE add_store;
DEALLOCATE PREPARE add_store;

-- All slots of an item have the same epoch.
SET @add_slot_epoch = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_slot ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_slot' AND column_name = 'epoch'
);
PREPARE add_slot_epoch FROM @add_slot_epoch;
EXECUTE add_slot_epoch;
DEALLOCATE PREPARE add_slot_epoch;

SET @add_unit_epoch = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE unit_stock ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'unit_stock' AND column_name = 'epoch'
);
PREPARE add_unit_epoch FROM @add_unit_epoch;
EXECUTE add_unit_epoch;
DEALLOCATE PREPARE add_unit_epoch;

-- +goose Down
ALTER TABLE unit_stock DROP COLUMN epoch;
ALTER TABLE good_slot DROP COLUMN epoch;
ALTER TABLE ledger DROP COLUMN epoch, DROP COLUMN store;
