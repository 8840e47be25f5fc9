-- Sales that `redis-stream` made in Redis and wrote to MySQL. Each sale is identified by its entry in the stream of the
-- item, so that an entry that is delivered again changes nothing. Setting the stock of an item begins a new epoch, here
-- and in Redis. Sales from an older epoch are recorded, but not deducted.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS. A prepared statement adds the column only if it is missing, so that the
-- migration can run again: see 00001.

-- +goose Up
CREATE TABLE IF NOT EXISTS stream_sale (
    goods_id BIGINT      NOT NULL,
    -- The ID of the stream entry: milliseconds and a sequence number, such as 1700000000000-0.
    entry    VARCHAR(41) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- Random. Redis may reuse an entry ID for another sale after it has lost data or its clock was set back.
    nonce    BIGINT      NOT NULL,
    units    BIGINT      NOT NULL, -- negative for a restock
    epoch    BIGINT      NOT NULL,
    -- FALSE if the epoch of the sale was not that of good_stock when the sale was written.
    deducted BOOLEAN     NOT NULL,
    written  DATETIME(6) NOT NULL, -- UTC
    PRIMARY KEY (goods_id, entry, nonce),
    KEY stream_sale_written (written)     -- old rows are deleted
) ENGINE = InnoDB;
SET @add_epoch = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_stock ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'epoch'
);
PREPARE add_epoch FROM @add_epoch;
EXECUTE add_epoch;
DEALLOCATE PREPARE add_epoch;

-- +goose Down
ALTER TABLE good_stock DROP COLUMN epoch;
DROP TABLE IF EXISTS stream_sale;
