-- The stock of an item in the store `slots` is the sum of its rows. Buyers who take units from different rows do not
-- wait for each other's row locks. The store is independent of good_stock: no strategy uses both.

-- +goose Up
CREATE TABLE IF NOT EXISTS good_slot (
    goods_id BIGINT NOT NULL,
    slot     INT    NOT NULL,
    -- Units left in this slot.
    stock    BIGINT NOT NULL,
    -- Row locks of an item are taken in the ascending order of this index, which prevents deadlocks.
    PRIMARY KEY (goods_id, slot)
) ENGINE = InnoDB;

-- The item of 00002, split evenly.
INSERT INTO good_slot (goods_id, slot, stock) VALUES
    (1, 0, 375), (1, 1, 375), (1, 2, 375), (1, 3, 375), (1, 4, 375), (1, 5, 375), (1, 6, 375), (1, 7, 375),
    (1, 8, 375), (1, 9, 375), (1, 10, 375), (1, 11, 375), (1, 12, 375), (1, 13, 375), (1, 14, 375), (1, 15, 375)
ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id);

-- +goose Down
DROP TABLE IF EXISTS good_slot;
