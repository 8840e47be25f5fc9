package verify

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"stock/loadtest/internal/history"
)

// clockSlack is by how much a critical section may seem to lie outside its own request, because clocks are read one
// after the other.
const clockSlack = int64(time.Millisecond)

// Entered reports whether the time of a request in its critical section is on record.
func Entered(op history.Op) bool { return op.EnteredNS > 0 && op.LeftNS > op.EnteredNS }

// overlaps counts the pairs of critical sections that overlap in time, item by item. They convict only a strategy that
// claims exclusion.
func (b *books) overlaps() (r result) {
	foreign := b.foreignReplicas()
	for _, replica := range slices.Sorted(maps.Keys(foreign)) {
		r.remarkf("replica %s: its clock is not the lab's, because its critical sections lie outside their own requests: "+
			"its overlaps are not counted", cmp.Or(replica, "without a name"))
	}
	misread := 0
	for _, it := range b.items {
		for _, e := range it.sold {
			if e.misread() && !foreign[e.Replica] {
				misread++
			}
		}
	}
	if misread > 0 {
		r.remarkf("%d critical sections lie outside their own requests: their overlaps are not counted", misread)
	}
	r.add(eachItem(func(it *item) result { return it.overlaps(foreign) })(b))
	return r
}

// foreignReplicas returns the replicas of whose critical sections most lie outside the requests that they belong to.
// Such a replica runs on another host, and its clock cannot be compared with the lab's. A few bad readings are no
// reason to trust none of the others.
func (b *books) foreignReplicas() map[string]bool {
	outside := map[string]int{} // sections outside their requests less those inside
	for _, it := range b.items {
		for _, e := range it.sold {
			switch {
			case e.misread():
				outside[e.Replica]++
			case Entered(e.Op):
				outside[e.Replica]--
			}
		}
	}
	foreign := map[string]bool{}
	for replica, excess := range outside {
		if excess > 0 {
			foreign[replica] = true
		}
	}
	return foreign
}

// misread reports whether the critical section lies outside its own request, which cannot be.
func (e effect) misread() bool {
	return Entered(e.Op) && (e.EnteredNS < e.since-clockSlack || e.LeftNS > e.until+clockSlack)
}

// overlap is a critical section that began before others had ended.
type overlap struct {
	first  *effect // of the others, the one that ended last
	second *effect
	others int64
}

// overlapping yields the overlaps of the critical sections by time, except of those whose times cannot be compared.
// Sections that touch do not overlap, and a section of no length overlaps nothing.
func (it *item) overlapping(foreign map[string]bool) iter.Seq[overlap] {
	var sections []*effect
	for i := range it.sold {
		if e := &it.sold[i]; Entered(e.Op) && !e.misread() && !foreign[e.Replica] {
			sections = append(sections, e)
		}
	}
	slices.SortStableFunc(sections, func(a, b *effect) int { return cmp.Compare(a.EnteredNS, b.EnteredNS) })
	return func(yield func(overlap) bool) {
		var inside []*effect
		for _, e := range sections {
			inside = slices.DeleteFunc(inside, func(other *effect) bool { return other.LeftNS <= e.EnteredNS })
			if len(inside) > 0 {
				last := slices.MaxFunc(inside, func(a, b *effect) int { return cmp.Compare(a.LeftNS, b.LeftNS) })
				if !yield(overlap{first: last, second: e, others: int64(len(inside))}) {
					return
				}
			}
			inside = append(inside, e)
		}
	}
}

func (it *item) overlaps(foreign map[string]bool) (r result) {
	for o := range it.overlapping(foreign) {
		together := time.Duration(min(o.first.LeftNS, o.second.LeftNS) - o.second.EnteredNS)
		r.findf("item %d: the critical sections of requests %s (%s) and %s (%s) overlap by %v",
			it.id, name(o.first.Op), o.first.Replica, name(o.second.Op), o.second.Replica, together)
		r.figures.Overlaps += o.others
	}
	return r
}

// contention counts the requests that were sent while another one for the same item was in flight, and checks that
// enough could race.
func (b *books) contention() (r result) {
	for _, it := range b.items {
		r.figures.Contended += met(it.load)
	}
	if contended := r.figures.Contended; contended < MinContended {
		r.findf("only %d requests were sent while another one for the same item was in flight, fewer than %d: "+
			"races were hardly tested", contended, MinContended)
	}
	return r
}

// met counts the requests that were sent while another one was in flight.
func met(load []history.Op) (n int64) {
	load = slices.Clone(load)
	slices.SortFunc(load, func(a, b history.Op) int { return cmp.Compare(a.SentNS, b.SentNS) })
	var answered int64 // when all requests so far were answered
	for i, op := range load {
		if i > 0 && op.SentNS < answered {
			n++
		}
		answered = max(answered, op.ReceivedNS)
	}
	return n
}
