-- What `redis-stream` has sold in Redis and written here: one row a sale, known by its entry in the goods' stream, so that an
-- entry that is delivered again changes nothing. `epoch` tells which stock a sale was taken from: setting the stock of a
-- goods begins another one, here and in Redis, and what is left of the older one's entries is kept, but not deducted.
--
-- MySQL knows no ADD COLUMN IF NOT EXISTS, so that the statement is made here: it must be able to run again.

-- +goose Up
CREATE TABLE IF NOT EXISTS stream_sale (
    goods_id BIGINT      NOT NULL,
    -- Milliseconds and a number, as Redis writes it: 1700000000000-0.
    entry    VARCHAR(41) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- At random. Redis may give an id again when it has lost its data or its clock was set back: that is another sale.
    nonce    BIGINT      NOT NULL,
    units    BIGINT      NOT NULL, -- below zero for a restock
    epoch    BIGINT      NOT NULL,
    -- FALSE for what was sold from a stock that was not the one in good_stock when it came here.
    deducted BOOLEAN     NOT NULL,
    written  DATETIME(6) NOT NULL, -- UTC
    PRIMARY KEY (goods_id, entry, nonce),
    KEY stream_sale_written (written)     -- sales are forgotten by age
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
