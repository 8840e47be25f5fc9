-- The ledger of the strategies that are idempotent: what became of every order, in the transaction that carries it out.
-- For every goods, the sum of `count` and the stock make up what there was, but for other strategies and restocks.

-- +goose Up
CREATE TABLE IF NOT EXISTS ledger (
    -- The client's idempotency key: printable ASCII, compared byte by byte. An order without one has a key of the service's
    -- own, which begins with a byte that no client can send. The key is the primary key, so that looking for it and claiming
    -- it lock one record, and no gap beside it.
    order_key   VARBINARY(255)           NOT NULL,
    -- An order has a row for each of its lines, from 0: goods in ascending order. Line 0 is the one to lock.
    line        SMALLINT UNSIGNED        NOT NULL DEFAULT 0,
    -- Of an order that is sold out, line 0 alone is kept, with the goods that was.
    goods_id    BIGINT                   NOT NULL,
    -- Units taken: 0 where the answer was "sold out".
    count       INT                      NOT NULL,
    -- Units left, as they were answered.
    remaining   BIGINT                   NOT NULL,
    outcome     ENUM('done', 'sold-out') NOT NULL,
    -- SHA-256 of what was ordered: the same key with another order is refused.
    fingerprint BINARY(32)               NOT NULL,
    created_at  DATETIME(6)              NOT NULL, -- UTC
    PRIMARY KEY (order_key, line),
    KEY ledger_goods_id (goods_id, count), -- sums are read from it alone
    KEY ledger_created_at (created_at)     -- orders are forgotten by age
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS ledger;
