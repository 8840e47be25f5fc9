package stock

import (
	"crypto/sha256"
	"strconv"
)

// Fingerprint identifies what a deduction from a store asks for. A key that is used again with another fingerprint is
// refused. It does not depend on the strategy: a request may be sent again after the default strategy was changed.
func (r Request) Fingerprint(on Store) []byte {
	return fingerprint("deduct", on, Line{GoodsID: r.GoodsID, Count: r.Count})
}

// Fingerprint identifies what a hold from a store asks for.
func (r HoldRequest) Fingerprint(on Store) []byte {
	ttl := strconv.FormatInt(r.TTL.Milliseconds(), 10)
	return fingerprint("hold "+ttl, on, Line{GoodsID: r.GoodsID, Count: r.Count})
}

// Fingerprint identifies what an order from a store asks for.
func (r OrderRequest) Fingerprint(on Store) []byte {
	return fingerprint("order", on, r.lines...)
}

func fingerprint(kind string, on Store, lines ...Line) []byte {
	asked := append(make([]byte, 0, 128), kind+" "+string(on)...)
	for _, line := range lines {
		asked = strconv.AppendInt(append(asked, ' '), line.GoodsID, 10)
		asked = strconv.AppendInt(append(asked, ' '), int64(line.Count), 10)
	}
	hash := sha256.Sum256(append(asked, '\n'))
	return hash[:]
}
