package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"stock/loadtest/internal/history"
)

// DrawUnexplained writes a page by porcupine for an item whose answers no sequence of the requests explains: which
// requests it could put into an order, and at which it failed. It returns false if it finds a sequence, or runs out of
// time.
func DrawUnexplained(h *history.History, item int64, path string) (bool, error) {
	it := openBooks(h).byID[item]
	if it == nil {
		return false, fmt.Errorf("draw item %d: the history has no such item", item)
	}
	ops := it.operations()
	putOnLines(ops)
	if len(it.unknownCounts()) > checkCounts {
		return false, nil // Judge does not check it either
	}
	found, info := porcupine.CheckOperationsVerbose(it.model(ops).porcupine(it.initial), ops, checkTime)
	if found != porcupine.Illegal {
		return false, nil
	}
	m := it.model(ops) // a new one, because drawing takes the steps again
	if err := porcupine.VisualizePath(m.porcupine(it.initial), info, path); err != nil {
		return false, fmt.Errorf("draw item %d: %w", item, err)
	}
	return true, nil
}

// putOnLines gives each operation a line of the picture on which no other one is under way. The lines are not those of
// the clients, some of which have several requests under way.
func putOnLines(ops []porcupine.Operation) {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var until []int64 // by line
	for i := range ops {
		line := slices.IndexFunc(until, func(end int64) bool { return end < ops[i].Call })
		if line < 0 {
			line, until = len(until), append(until, 0)
		}
		ops[i].ClientId, until[line] = line, ops[i].Return
	}
}

// describe is the text of an operation in a picture.
func (s step) describe() string {
	switch s.kind {
	case sell:
		return fmt.Sprintf("sold %d, %d remain", s.count, s.remaining)
	case sellOmitting:
		return fmt.Sprintf("sold %d", s.count)
	case refuse:
		return fmt.Sprintf("%d refused", s.count)
	case putBack:
		return fmt.Sprintf("%d put back, %d remain", s.count, s.remaining)
	case send:
		return fmt.Sprintf("%d sent, outcome unknown", s.count)
	}
	return fmt.Sprintf("%d in stock", s.remaining)
}
