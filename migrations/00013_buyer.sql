-- How many units of an item each buyer has bought, for requests that limit it. Only a transaction that has locked the
-- item's row in good_stock reads or writes a row of the item here, so nobody waits for one.
--
-- Setting the stock of an item begins a new epoch. Units of an older epoch do not count.

-- +goose Up
CREATE TABLE IF NOT EXISTS buyer_units (
    goods_id   BIGINT        NOT NULL,
    -- As the client names the buyer: printable ASCII, compared byte by byte.
    buyer      VARBINARY(64) NOT NULL,
    epoch      BIGINT        NOT NULL, -- of the stock from which the units were sold
    units      BIGINT        NOT NULL,
    created_at DATETIME(6)   NOT NULL, -- of the last sale, UTC
    PRIMARY KEY (goods_id, buyer),
    KEY buyer_units_created_at (created_at) -- old rows are deleted
) ENGINE = InnoDB;

-- A refusal because of the limit is an answer too. Its row has the item, and in `remaining` the units that the buyer
-- had bought.
ALTER TABLE ledger MODIFY COLUMN outcome ENUM('done', 'sold-out', 'buyer-limit') NOT NULL;

-- +goose Down
DELETE FROM ledger WHERE outcome = 'buyer-limit';
ALTER TABLE ledger MODIFY COLUMN outcome ENUM('done', 'sold-out') NOT NULL;
DROP TABLE IF EXISTS buyer_units;
