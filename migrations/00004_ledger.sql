-- The ledger of the idempotent strategies. It records the outcome of each request, in the transaction that changes the
-- stock. For each item, the stock and the sum of `count` add up to the initial stock, apart from restocks and from
-- sales by other strategies.

-- +goose Up
CREATE TABLE IF NOT EXISTS ledger (
    -- The idempotency key of the client: printable ASCII, compared byte by byte. If the client sends none, the service
    -- generates a key, which starts with a byte that no client can send. It is the primary key, so that reading and
    -- inserting it lock one record, and no gap next to it.
    order_key   VARBINARY(255)           NOT NULL,
    -- An order has one row per line, numbered from 0 by ascending goods_id. Line 0 is the one to lock.
    line        SMALLINT UNSIGNED        NOT NULL DEFAULT 0,
    -- If an order is refused as sold out, only line 0 is kept, with the item that was sold out.
    goods_id    BIGINT                   NOT NULL,
    -- Units sold; 0 if sold out.
    count       INT                      NOT NULL,
    -- Units left, as in the receipt.
    remaining   BIGINT                   NOT NULL,
    outcome     ENUM('done', 'sold-out') NOT NULL,
    -- SHA-256 of the request: the same key with a different request is refused.
    fingerprint BINARY(32)               NOT NULL,
    created_at  DATETIME(6)              NOT NULL, -- UTC
    PRIMARY KEY (order_key, line),
    KEY ledger_goods_id (goods_id, count), -- covers the sums
    KEY ledger_created_at (created_at)     -- old rows are deleted
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS ledger;
