package redis

import "strconv"

// Key holds the stock of an item. It has braces around the id, so that all keys of one item share a hash slot of Redis
// Cluster.
func Key(goodsID int64) string { return "stock:{" + strconv.FormatInt(goodsID, 10) + "}" }

// EpochKey holds the epoch of an item's stock. If there is none, the epoch is 0.
func EpochKey(goodsID int64) string { return Key(goodsID) + ":epoch" }

// StreamKey holds the stream of an item's sales, for the strategy redis-stream. It exists only while the item is being
// sold.
func StreamKey(goodsID int64) string { return Key(goodsID) + ":sales" }

// fenceKey holds the registered holder: "token issuer".
func fenceKey(goodsID int64) string { return Key(goodsID) + ":fence" }
