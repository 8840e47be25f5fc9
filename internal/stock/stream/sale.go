package stream

import (
	"cmp"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"
)

// sale is an entry of an item's stream: what one call of sell.lua has sold, for one request or several. A restock is a
// sale of a negative number of units.
type sale struct {
	saleKey
	units int64
	epoch int64 // of the stock that it was made from
}

// saleKey identifies a sale. The random number tells entries with the same id apart.
type saleKey struct {
	goodsID int64
	entry   string
	nonce   int64
}

// readSale reads an entry that sell.lua or restock.lua has written.
func readSale(goodsID int64, message goredis.XMessage) (sale, error) {
	units, err := strconv.ParseInt(fmt.Sprint(message.Values["units"]), 10, 64)
	epoch, err2 := strconv.ParseInt(fmt.Sprint(message.Values["epoch"]), 10, 64)
	nonce, err3 := strconv.ParseInt(fmt.Sprint(message.Values["nonce"]), 10, 64)
	if err := cmp.Or(err, err2, err3); err != nil {
		return sale{}, fmt.Errorf("the stream of item %d has entry %s with %v: %w",
			goodsID, message.ID, message.Values, err)
	}
	return sale{saleKey{goodsID, message.ID, nonce}, units, epoch}, nil
}

func byItem(sales []sale) map[int64][]sale {
	items := map[int64][]sale{}
	for _, s := range sales {
		items[s.goodsID] = append(items[s.goodsID], s)
	}
	return items
}
