-- The refusal of a hold with an idempotency key is a row of the table reservation: the key is unique there, so that it
-- has one answer. No client knows the id of such a row.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds a column only if it is missing, so that the migration
-- can run again: see 00001.

-- +goose Up
-- Units that were left when a hold was refused.
SET @add_remaining = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE reservation ADD COLUMN remaining BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'reservation' AND column_name = 'remaining'
);
PREPARE add_remaining FROM @add_remaining;
EXECUTE add_remaining;
DEALLOCATE PREPARE add_remaining;

ALTER TABLE reservation
    MODIFY COLUMN state ENUM('held', 'confirmed', 'cancelled', 'expired', 'refused') NOT NULL;

-- +goose Down
DELETE FROM reservation WHERE state = 'refused';
ALTER TABLE reservation MODIFY COLUMN state ENUM('held', 'confirmed', 'cancelled', 'expired') NOT NULL;
ALTER TABLE reservation DROP COLUMN remaining;
