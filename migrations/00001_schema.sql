-- The schema. Every statement of a migration can run again: MySQL commits before and after each DDL statement, so an
-- interrupted migration is not rolled back but repeated. Times are in UTC.

-- +goose Up

-- One row per item. Columns other than goods_id and stock are for the strategies that their comments name.
CREATE TABLE IF NOT EXISTS good_stock (
    id            BIGINT          NOT NULL AUTO_INCREMENT,
    -- Without a unique index, a locking read or an UPDATE of one item would lock the rows of all items.
    goods_id      BIGINT          NOT NULL,
    -- Units left. Signed, because `decrement` oversells, and the lab must see by how much.
    stock         BIGINT          NOT NULL,
    -- `optimistic-version` writes only if this has not changed since it read the row.
    version       BIGINT          NOT NULL DEFAULT 0,
    -- Times of the last write by any strategy, for optimistic locking. `optimistic-timestamp-us` sets its own.
    stamp         DATETIME(6)     NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    stamp_seconds DATETIME        NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    -- The fencing token of the last sale, and the strategy that issued it. A lock holder may write only with a token
    -- greater than the last one of the same issuer, and if the stock is what it has read. Tokens of different issuers
    -- cannot be compared. Locks without a fence do not look at the token, so an item must be sold either with fenced
    -- locks only, or without them.
    fence         BIGINT UNSIGNED NOT NULL DEFAULT 0,
    fence_issuer  VARCHAR(32)     NOT NULL DEFAULT '',
    -- Setting the stock begins a new epoch.
    epoch         BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY good_stock_goods_id (goods_id)
) ENGINE = InnoDB;

-- The stock of an item in the store `slots` is the sum of its rows. Buyers who take units from different rows do not
-- wait for each other's row locks. The store is independent of good_stock: no strategy uses both.
CREATE TABLE IF NOT EXISTS good_slot (
    goods_id BIGINT NOT NULL,
    slot     INT    NOT NULL,
    -- Units left in this slot.
    stock    BIGINT NOT NULL,
    -- The units that `escrow` sold in batches from this row since the units of the item were last spread over the rows.
    sold     BIGINT NOT NULL DEFAULT 0,
    -- All slots of an item have the same epoch.
    epoch    BIGINT NOT NULL DEFAULT 0,
    -- Row locks of an item are taken in the ascending order of this index, which prevents deadlocks.
    PRIMARY KEY (goods_id, slot)
) ENGINE = InnoDB;

-- Numbers the replicas for `escrow`, so that those of one deployment sell from different rows. It concerns speed only:
-- a replica may take units from every row of good_slot.
CREATE TABLE IF NOT EXISTS slot_replica (
    id   TINYINT NOT NULL PRIMARY KEY, -- 1: the table has one row
    last BIGINT  NOT NULL              -- the number that was given last
) ENGINE = InnoDB;
INSERT INTO slot_replica (id, last) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = VALUES(id);

-- The store `units` has a row in good_unit for each unit, so that buyers who lock different units do not wait for each
-- other. Rows are made when they are needed, many at a time: the stock of an item is its rows and its unmade units. The
-- store is independent of good_stock: no strategy uses both.
CREATE TABLE IF NOT EXISTS unit_stock (
    goods_id BIGINT NOT NULL,
    -- Units that have no row yet.
    unmade   BIGINT NOT NULL,
    -- The number of the last row that was made.
    made     BIGINT NOT NULL DEFAULT 0,
    epoch    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS good_unit (
    goods_id BIGINT NOT NULL,
    unit     BIGINT NOT NULL,
    PRIMARY KEY (goods_id, unit)
) ENGINE = InnoDB;

-- The ledger records the outcome of each request with an idempotency key, in the transaction that changes the stock.
-- For each item, the stock and the sum of `count` add up to the initial stock, apart from restocks and from sales
-- without a key.
CREATE TABLE IF NOT EXISTS ledger (
    -- The idempotency key of the client: printable ASCII, compared byte by byte. It is the primary key, so that reading
    -- and inserting it lock one record, and no gap next to it.
    order_key   VARBINARY(255)                                NOT NULL,
    -- An order has one row per line, numbered from 0 by ascending goods_id. Line 0 is the one to lock.
    line        SMALLINT UNSIGNED                             NOT NULL DEFAULT 0,
    -- If an order is refused as sold out, only line 0 is kept, with the item that was sold out.
    goods_id    BIGINT                                        NOT NULL,
    -- Units sold; 0 otherwise.
    count       INT                                           NOT NULL,
    -- Units left, as in the receipt.
    remaining   BIGINT                                        NOT NULL,
    -- 'cancelled': nothing was sold under the key, and nothing may be sold any more, because its request was refused
    -- and then cancelled, or because the cancellation came first. Then goods_id is 0.
    -- 'held': the key is that of a hold. The reservation tells what became of it.
    outcome     ENUM('done', 'sold-out', 'cancelled', 'held') NOT NULL,
    -- SHA-256 of the request: the same key with a different request is refused.
    fingerprint BINARY(32)                                    NOT NULL,
    -- The store from which the units were sold, and the epoch of its stock: units that are cancelled are put back only
    -- into that stock.
    store       ENUM('mysql', 'slots', 'units')               NOT NULL DEFAULT 'mysql',
    epoch       BIGINT                                        NOT NULL DEFAULT 0,
    -- Units of the sale that were cancelled, and how many of these were put back into the stock.
    cancelled   INT                                           NOT NULL DEFAULT 0,
    given_back  INT                                           NOT NULL DEFAULT 0,
    -- The id of the reservation, if the outcome is 'held'.
    reservation BINARY(16)                                    NULL,
    created_at  DATETIME(6)                                   NOT NULL,
    PRIMARY KEY (order_key, line),
    KEY ledger_goods_id (goods_id, count),   -- covers the sums
    KEY ledger_outcome (outcome, created_at) -- finds the old rows of one outcome, to delete them
) ENGINE = InnoDB;

-- Units that `reserve` holds for a buyer, who confirms or cancels in time, or lets the reservation expire. The stock of
-- an item, the units held, and the units confirmed add up to the initial stock, apart from restocks and from sales by
-- other strategies.
--
-- Who changes a reservation and puts its units back locks the row of its item in good_stock first, and then the
-- reservation. A confirmation, which changes no stock, locks reservations only, in the order of their ids.
CREATE TABLE IF NOT EXISTS reservation (
    -- A UUID of version 7.
    id         BINARY(16)                                        NOT NULL,
    -- The key of its row in the ledger, if the client sent one.
    order_key  VARBINARY(255)                                    NULL,
    goods_id   BIGINT                                            NOT NULL,
    -- Units.
    count      INT                                               NOT NULL,
    -- For how long the client asked to hold the units, milliseconds.
    ttl_ms     BIGINT                                            NOT NULL,
    -- The epoch of the stock that the units were taken from. If the stock was set since then, they are not put back.
    epoch      BIGINT                                            NOT NULL,
    state      ENUM('held', 'confirmed', 'cancelled', 'expired') NOT NULL,
    created_at DATETIME(6)                                       NOT NULL,
    expires_at DATETIME(6)                                       NOT NULL,
    ended_at   DATETIME(6)                                       NULL,
    PRIMARY KEY (id),
    -- Finds what has expired and what can be pruned, and covers the sum of the units held.
    KEY reservation_state (state, expires_at, goods_id, count)
) ENGINE = InnoDB;

-- Sales that `redis-stream` made in Redis and wrote to MySQL. Each sale is identified by its entry in the stream of the
-- item, so that an entry that is delivered again changes nothing. Sales from an older epoch are recorded, but not
-- deducted.
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
    written  DATETIME(6) NOT NULL,
    PRIMARY KEY (goods_id, entry, nonce),
    KEY stream_sale_written (written) -- old rows are deleted
) ENGINE = InnoDB;

-- The locks of `lock-mysql-row`: a row for each lock that somebody holds, or held and did not release.
CREATE TABLE IF NOT EXISTS lock_row (
    -- Compared byte by byte.
    name    VARBINARY(255) NOT NULL,
    -- Random: only the holder knows it.
    owner   VARBINARY(64)  NOT NULL,
    -- By the server's clock. Anybody may take over the lock from then on.
    expires DATETIME(6)    NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB;

-- An item to try the service with, in each store.
INSERT INTO good_stock (goods_id, stock) VALUES (1, 6000)
ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id);
INSERT INTO good_slot (goods_id, slot, stock) VALUES
    (1, 0, 375), (1, 1, 375), (1, 2, 375), (1, 3, 375), (1, 4, 375), (1, 5, 375), (1, 6, 375), (1, 7, 375),
    (1, 8, 375), (1, 9, 375), (1, 10, 375), (1, 11, 375), (1, 12, 375), (1, 13, 375), (1, 14, 375), (1, 15, 375)
ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id);
INSERT INTO unit_stock (goods_id, unmade) VALUES (1, 6000)
ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id);

-- +goose Down
DROP TABLE IF EXISTS lock_row, stream_sale, reservation, ledger, good_unit, unit_stock, slot_replica, good_slot,
    good_stock;
