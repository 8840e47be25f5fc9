-- What the strategy `escrow` needs to divide the units of an item between the replicas. It concerns speed only: a replica
-- may take units from every row of good_slot.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds the column only if it is missing, so that the
-- migration can run again: see 00001.

-- +goose Up
-- The units that were sold in batches from a row since the units of its item were last spread over the rows.
SET @add_sold = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_slot ADD COLUMN sold BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_slot' AND column_name = 'sold'
);
PREPARE add_sold FROM @add_sold;
EXECUTE add_sold;
DEALLOCATE PREPARE add_sold;

-- Numbers the replicas, so that those of one deployment sell from different rows.
CREATE TABLE IF NOT EXISTS slot_replica (
    id   TINYINT NOT NULL PRIMARY KEY, -- 1: the table has one row
    last BIGINT  NOT NULL              -- the number that was given last
) ENGINE = InnoDB;
INSERT INTO slot_replica (id, last) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = VALUES(id);

-- +goose Down
DROP TABLE IF EXISTS slot_replica;
ALTER TABLE good_slot DROP COLUMN sold;
