package stock

import (
	"crypto/sha256"
	"fmt"
)

// Fingerprint identifies what a deduction from a store asks for. A key that is used again with another fingerprint is
// refused. It does not depend on the strategy: a request may be sent again after the default strategy was changed.
func (r Request) Fingerprint(on Store) []byte {
	return fingerprint("deduct", on, r.Buyer, Line{GoodsID: r.GoodsID, Count: r.Count})
}

// Fingerprint identifies what an order from a store asks for.
func (r OrderRequest) Fingerprint(on Store) []byte {
	return fingerprint("order", on, r.Buyer, r.lines...)
}

// fingerprint has the word "ledger" of the versions in which only that strategy kept keys.
func fingerprint(kind string, on Store, buyer Buyer, lines ...Line) []byte {
	asked := []any{kind, "ledger", on}
	for _, line := range lines {
		asked = append(asked, line.GoodsID, line.Count)
	}
	if buyer.Name != "" {
		asked = append(asked, "buyer", buyer.Limit, buyer.Name) // the name comes last, because it may contain spaces
	}
	hash := sha256.Sum256(fmt.Appendln(nil, asked...))
	return hash[:]
}
