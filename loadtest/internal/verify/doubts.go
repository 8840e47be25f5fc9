package verify

import "stock/loadtest/internal/history"

// answered is the number of requests for units that were granted or refused for good.
func (b *books) answered() int {
	o := b.outcomes
	return o[history.Sold] + o[history.Done] + o[history.SoldOut]
}

// exceeds reports whether n is more than a share of all requests.
func (b *books) exceeds(n int64, share float64) bool { return float64(n) > share*float64(b.requests) }

// complete checks that the run came to its end and that what it left was read.
func (b *books) complete() (r result) {
	if b.end == nil {
		r.findf("the run was interrupted: the final stock was not read")
		return r
	}
	if b.run.Ledger && !b.end.LedgerRead {
		r.findf("the ledger was not read after the run")
	}
	for _, it := range b.items {
		if !it.finalRead {
			r.findf("item %d: the stock was not read after the run", it.id)
		}
	}
	return r
}

// enoughLoad checks that enough requests were answered, and that every replica answered some.
func (b *books) enoughLoad() (r result) {
	if n := b.answered(); n < MinAnswered {
		r.findf("only %d requests were answered, fewer than %d: too little load", n, MinAnswered)
		return r
	}
	replicas := map[string]bool{}
	for op := range b.deductions() {
		if decided(op) && op.Replica != "" {
			replicas[op.Replica] = true
		}
	}
	if len(replicas) < b.run.Replicas {
		r.findf("only %d of %d replicas answered: the others were not tested", len(replicas), b.run.Replicas)
	}
	return r
}

// scarcity checks that a workload that should sell out did.
func (b *books) scarcity() (r result) {
	if !b.demandExceeded() {
		r.findf("demand never exceeded the stock, although it should have: overselling was not tested")
	}
	return r
}

func (b *books) fewUnknown() (r result) {
	unknown, all := b.count(history.Unknown)
	if float64(unknown) > MaxUnknown*float64(all) {
		r.findf("the outcome of %d of %d requests is unknown, more than %.0f %%", unknown, all, 100*MaxUnknown)
	}
	return r
}

// count counts the deductions, orders and calls with an outcome, and all, without those that were sent again.
func (b *books) count(outcome history.Outcome) (with, all int) {
	for op := range b.deductions() {
		if all++; op.Outcome == outcome {
			with++
		}
	}
	return with, all
}

func (b *books) fewBusyCalls() (r result) {
	busy, all := b.count(history.Busy)
	r.figures.TurnedAway = int64(busy)
	if float64(busy) > MaxBusy*float64(all) {
		r.findf("%d of %d requests were answered busy, more than %.0f %%", busy, all, 100*MaxBusy)
	}
	return r
}

// fewTurnedAway allows one more for each restock: a fence refuses the holder who read the stock before it.
func (b *books) fewTurnedAway() (r result) {
	for range b.turnedAway() {
		r.figures.TurnedAway++
	}
	restocks := int64(0)
	for _, op := range b.ops {
		if op.Kind == history.Restock {
			restocks++
		}
	}
	if b.exceeds(r.figures.TurnedAway-restocks, MaxBusy) {
		r.findf("%d of %d buyers were turned away as busy while stock was left, more than %.0f %%",
			r.figures.TurnedAway, b.requests, 100*MaxBusy)
	}
	return r
}

// noneRejected checks that the lab sent no invalid request.
func (b *books) noneRejected() (r result) {
	n, requests := 0, 0
	var example history.Op
	for _, op := range b.ops {
		if op.Again {
			continue
		}
		requests++
		if op.Outcome == history.Rejected {
			if n++; n == 1 {
				example = op
			}
		}
	}
	if n > 0 {
		r.findf("%d of %d requests were rejected, such as request %s (%d %s): the lab sent something invalid",
			n, requests, name(example), example.Status, example.Error)
	}
	return r
}

// allReportRemaining checks that all sales report what remains, as the strategy should.
func (b *books) allReportRemaining() (r result) {
	omitting := 0
	for op := range b.deductions() {
		if op.OmitsRemaining && op.Outcome == history.Sold {
			omitting++
		}
	}
	if omitting > 0 {
		r.findf("%d sales did not report what remains, which the strategy should: "+
			"they cannot be checked against each other", omitting)
	}
	return r
}

// clocks checks that time did not run backwards, on the lab's clock and on that of a service that takes reservations.
func (b *books) clocks() (r result) {
	backwards := 0
	for op := range b.deductions() {
		if op.Outcome != history.Unknown && op.ReceivedNS < op.SentNS {
			backwards++
		}
	}
	if backwards > 0 {
		r.findf("%d replies were received before their requests were sent: the clocks cannot be trusted", backwards)
	}
	if b.clockKnown && b.clock.jumped() {
		r.findf("the times at which reservations were created contradict the lab's clock by %.0f ms: "+
			"what is late was not judged", float64(b.clock.low-b.clock.high)/1e6)
	}
	return r
}

// witness remarks on who read the stock.
func (b *books) witness() (r result) {
	if b.run.Witness == history.WitnessService {
		r.remarkf("the service was its own witness: nobody else read its stock")
	}
	return r
}
