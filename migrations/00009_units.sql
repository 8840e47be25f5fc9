-- The store `units` has a row for each unit, so that buyers who lock different units do not wait for each other. Rows
-- are made when they are needed, many at a time: the stock of an item is its rows and its unmade units. The store is
-- independent of good_stock: no strategy uses both.

-- +goose Up
CREATE TABLE IF NOT EXISTS unit_stock (
    goods_id BIGINT NOT NULL,
    -- Units that have no row yet.
    unmade   BIGINT NOT NULL,
    -- The number of the last row that was made.
    made     BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS good_unit (
    goods_id BIGINT NOT NULL,
    unit     BIGINT NOT NULL,
    PRIMARY KEY (goods_id, unit)
) ENGINE = InnoDB;

-- The item of 00002.
INSERT INTO unit_stock (goods_id, unmade) VALUES (1, 6000)
ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id);

-- +goose Down
DROP TABLE IF EXISTS good_unit;
DROP TABLE IF EXISTS unit_stock;
