-- An item to try the service with.

-- +goose Up
INSERT INTO good_stock (goods_id, stock) VALUES (1, 6000)
ON DUPLICATE KEY UPDATE goods_id = goods_id;

-- +goose Down
DELETE FROM good_stock WHERE goods_id = 1;
