package verify_test

import (
	"testing"

	"stock/loadtest/internal/history"
)

func TestAReceiptForSomethingElseIsWrong(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(4))
	op := &h.Ops[sales(h)[3]]
	lose(op)
	op.Status, op.Error = 200, history.Mismatch
	expectWrong(t, h, "for something else")
}

func TestAFirstAnswerThatIsMarkedAsAReplayIsWrong(t *testing.T) {
	t.Parallel()
	h := simulate(plenty(5))
	h.Ops[sales(h)[3]].Replayed = true
	expectWrong(t, h, "was sent once, but its answer is marked as a replay")
}
