-- Units that `reserve` holds for a buyer, who confirms or cancels in time, or lets the reservation expire. The stock of
-- an item, the units held, and the units confirmed add up to the initial stock, apart from restocks and from sales by
-- other strategies.
--
-- Who changes a reservation and puts its units back locks the row of its item in good_stock first, and then the
-- reservation. A confirmation, which changes no stock, locks reservations only, in the order of their ids.

-- +goose Up
CREATE TABLE IF NOT EXISTS reservation (
    -- A UUID of version 7.
    id         BINARY(16)                                          NOT NULL,
    -- The idempotency key of the client, if it sent one.
    client_key VARBINARY(255)                                      NULL,
    goods_id   BIGINT                                              NOT NULL,
    -- Units.
    count      INT                                                 NOT NULL,
    -- For how long the client asked to hold the units, milliseconds.
    ttl_ms     BIGINT                                              NOT NULL,
    -- The epoch of the stock that the units were taken from. If the stock was set since then, they are not put back.
    epoch      BIGINT                                              NOT NULL,
    state      ENUM('held', 'confirmed', 'cancelled', 'expired')   NOT NULL,
    created_at DATETIME(6)                                         NOT NULL, -- UTC, as are the others
    expires_at DATETIME(6)                                         NOT NULL,
    ended_at   DATETIME(6)                                         NULL,
    PRIMARY KEY (id),
    UNIQUE KEY reservation_client_key (client_key),
    -- Finds what has expired and what can be pruned, and covers the sum of the units held.
    KEY reservation_state (state, expires_at, goods_id, count)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS reservation;
