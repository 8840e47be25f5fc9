package verify

import (
	"context"

	"github.com/anishathalye/porcupine"

	"stock/loadtest/internal/history"
)

// Explains reports whether the checker explains all answers by trying to place an operation at most limit times for
// each item. Its time consists of these tries, whose number does not depend on the machine.
func Explains(h *history.History, limit int) bool {
	explained := true
	for _, it := range openBooks(h).items {
		m := model{counts: it.unknownCounts(), steps: limit}
		limited := m.porcupine(it.initial)
		tried, step := 0, limited.StepContext
		limited.StepContext = func(ctx context.Context, from, input, output any) (bool, any) {
			if tried++; tried > limit {
				return false, nil
			}
			return step(ctx, from, input, output)
		}
		explained = porcupine.CheckOperations(limited, it.operations()) && explained
	}
	return explained
}
