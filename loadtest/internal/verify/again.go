package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"stock/loadtest/internal/history"
)

// againTested counts the requests that were sent again, and checks that a strategy that deducts a retry again would
// have been caught.
func (b *books) againTested() (r result) {
	answeredBy := map[string]string{} // replica by request
	for op := range b.deductions() {
		if op.Replica != "" {
			answeredBy[op.Name] = op.Replica
		}
	}
	for op := range b.again() {
		r.figures.SentAgain++
		if b.foundEnough(op) {
			r.figures.AgainInStock++
		}
		if first := answeredBy[op.Name]; first != "" && op.Replica != "" && op.Replica != first {
			r.figures.AgainElsewhere++
		}
	}
	if r.figures.AgainInStock == 0 {
		r.findf("none of the %d requests that were sent again was sent while stock was certainly left: "+
			"deducting twice was not tested", r.figures.SentAgain)
	}
	if b.run.Replicas > 1 && r.figures.AgainElsewhere == 0 {
		r.findf("none of the %d requests that were sent again reached another replica than before: "+
			"what replicas know of each other's answers was not tested", r.figures.SentAgain)
	}
	return r
}

// replays compares the answers to requests that were sent again with the first answers.
func (b *books) replays() (r result) {
	first := map[string]history.Op{}
	for op := range b.deductions() {
		if _, known := first[op.Name]; !known && decided(op) {
			first[op.Name] = op
		}
	}
	for op := range b.again() {
		was, known := first[op.Name]
		if op.Outcome == history.Rejected || known && was.ReceivedNS <= op.SentNS && refusedForGood(op) {
			status := fmt.Sprint(op.Status) // with which a service of the user's begins its error
			r.findf("%s was refused when it was sent again (%s %s)", inWords(op), status,
				strings.TrimPrefix(op.Error, status+" "))
			continue
		}
		if !decided(op) {
			continue // no answer, or the first request is still in progress: that is no contradiction
		}
		switch {
		case !known:
			first[op.Name] = op
		case !sameAnswer(op, was):
			r.findf("%s was first told %s, and on the retry %s", inWords(op), answerTo(was), answerTo(op))
		default:
			r.figures.Replays++
		}
	}
	r.figures.DifferentAnswers = r.findings
	return r
}

// decided reports whether a request was granted or refused for good.
func decided(op history.Op) bool {
	switch op.Outcome {
	case history.Sold, history.Done, history.SoldOut:
		return true
	}
	return false
}

// refusedForGood reports whether a service of the user's refuses a request, and not only for now.
func refusedForGood(op history.Op) bool {
	switch op.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return op.Outcome == history.Busy && op.Status/100 == 4
}

func sameAnswer(a, b history.Op) bool {
	return a.Outcome == b.Outcome && a.Remaining == b.Remaining &&
		slices.EqualFunc(a.Lines, b.Lines, func(x, y history.Line) bool {
			return x.GoodsID == y.GoodsID && x.Remaining == y.Remaining && x.Short == y.Short
		})
}

// inWords names a request at the beginning of a finding.
func inWords(op history.Op) string {
	if op.Kind == history.Order {
		return "order " + op.Name
	}
	return fmt.Sprintf("item %d: deduction %s", op.GoodsID, op.Name)
}

// answerTo describes the answer to a request: sold, 3 remaining; or sold, 3 of item 1 and 5 of item 2 remaining.
func answerTo(op history.Op) string {
	if op.Kind != history.Order {
		return fmt.Sprintf("%s, %d remaining", op.Outcome, op.Remaining)
	}
	var remaining []string
	for _, line := range op.Lines {
		if op.Outcome == history.Sold || line.Short {
			remaining = append(remaining, fmt.Sprintf("%d of item %d", line.Remaining, line.GoodsID))
		}
	}
	return fmt.Sprintf("%s, %s remaining", op.Outcome, strings.Join(remaining, " and "))
}
