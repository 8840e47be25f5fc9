package verify

import (
	"context"

	"github.com/anishathalye/porcupine"

	"stock/loadtest/internal/history"
)

// Explains says whether the checker explains all answers by placing an operation no more than limit times, for each goods.
// Its time is made of these tries, and unlike it they are as many on every machine.
func Explains(h *history.History, limit int) bool {
	explained := true
	for _, b := range openBooks(h) {
		kinds, _ := b.kinds()
		m := model{kinds: kinds, steps: limit}
		limited := m.porcupine(b.initial)
		tried, step := 0, limited.StepContext
		limited.StepContext = func(ctx context.Context, state, input, output any) (bool, any) {
			if tried++; tried > limit {
				return false, nil
			}
			return step(ctx, state, input, output)
		}
		explained = porcupine.CheckOperations(limited, b.operations()) && explained
	}
	return explained
}
