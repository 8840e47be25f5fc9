-- The strategy that issued the token in `fence`, which is that of the last sale. A lock holder may write only with a
-- token greater than the last one of the same issuer, and if the stock is what it has read. Tokens of different issuers
-- cannot be compared. Locks without a fence do not look at the token, so an item must be sold either with fenced locks
-- only, or without them.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds the column only if it is missing, so that the
-- migration can run again: see 00001.

-- +goose Up
SET @add_issuer = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_stock ADD COLUMN fence_issuer VARCHAR(32) NOT NULL DEFAULT ''''', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'fence_issuer'
);
PREPARE add_issuer FROM @add_issuer;
EXECUTE add_issuer;
DEALLOCATE PREPARE add_issuer;

-- +goose Down
ALTER TABLE good_stock DROP COLUMN fence_issuer;
