-- Timestamps for optimistic locking, in microseconds and in seconds. MySQL updates both with each write of any
-- strategy; `optimistic-timestamp-us` sets its own.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds the column only if it is missing, so that the
-- migration can run again: see 00001.

-- +goose Up
ALTER TABLE good_stock MODIFY COLUMN stamp DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6);
SET @add_seconds = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_stock ADD COLUMN stamp_seconds DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'stamp_seconds'
);
PREPARE add_seconds FROM @add_seconds;
EXECUTE add_seconds;
DEALLOCATE PREPARE add_seconds;

-- +goose Down
ALTER TABLE good_stock DROP COLUMN stamp_seconds;
ALTER TABLE good_stock MODIFY COLUMN stamp DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6);
