-- One row per item. Columns other than goods_id and stock are for the strategies that their comments name.
--
-- Every statement of a migration can run again: MySQL commits before and after each DDL statement, so an interrupted
-- migration is not rolled back but repeated.

-- +goose Up
CREATE TABLE IF NOT EXISTS good_stock (
    id       BIGINT          NOT NULL AUTO_INCREMENT,
    -- Without a unique index, a locking read or an UPDATE of one item would lock the rows of all items.
    goods_id BIGINT          NOT NULL,
    -- Units left. Signed, because `decrement` oversells, and the lab must see by how much.
    stock    BIGINT          NOT NULL,
    -- `optimistic-version` writes only if this has not changed since it read the row.
    version  BIGINT          NOT NULL DEFAULT 0,
    -- Time of the last write, for strategies that compare a timestamp instead of the version.
    stamp    DATETIME(6)     NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    -- Fencing token of the lock holder that wrote last: see 00003.
    fence    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY good_stock_goods_id (goods_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS good_stock;
