package share

import "fmt"

// Keys besides those of items, which are positive.
const (
	// HeldWork stands for all requests with work to do inside their transactions.
	HeldWork int64 = 0
	// Upkeep stands for administration and for work in the background.
	Upkeep int64 = -1
	// Reservations stands for all requests that read or end a reservation, whose item is not known at first.
	Reservations int64 = -2
	// Sales stands for all requests that read or cancel a sale, whose items are not known at first.
	Sales int64 = -3
)

var names = map[int64]string{
	HeldWork:     "work inside critical sections (hold_ms)",
	Upkeep:       "upkeep (administration and work in the background)",
	Reservations: "reading and ending reservations",
	Sales:        "the search for sales by their keys",
}

// Describe names what the keys stand for, in the words of an error. There must be at least one.
func Describe(keys []int64) string {
	if len(keys) > 1 {
		return fmt.Sprintf("one of the items %d", keys)
	}
	if name, found := names[keys[0]]; found {
		return name
	}
	return fmt.Sprintf("item %d", keys[0])
}
