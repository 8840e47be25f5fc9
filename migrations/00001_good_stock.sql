-- One row a goods. A column beside goods_id and stock belongs to the strategies that are named with it.
--
-- Every statement here may run again: MySQL commits before and after each DDL statement, so that a migration that was cut
-- off in the middle is not rolled back.

-- +goose Up
CREATE TABLE IF NOT EXISTS good_stock (
    id       BIGINT          NOT NULL AUTO_INCREMENT,
    -- Without a unique index, a locking read or an UPDATE of one goods would lock the rows of all others.
    goods_id BIGINT          NOT NULL,
    -- Units left. Signed, because `decrement` sells below zero and the lab must be able to see how far.
    stock    BIGINT          NOT NULL,
    -- `optimistic-version` writes only where this is what it read.
    version  BIGINT          NOT NULL DEFAULT 0,
    -- Time of the last optimistic write, for strategies that compare a timestamp in place of the version.
    stamp    DATETIME(6)     NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    -- Fencing token of the last holder of a lock that has claimed the row: see 00003.
    fence    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY good_stock_goods_id (goods_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS good_stock;
