package verify

import (
	"cmp"
	"slices"

	"stock/loadtest/internal/history"
)

// resold measures how long it takes until units that expired while none was free are held by another buyer. That
// includes the time until somebody asks for them. It finds nothing.
func (b *books) resold() (r result) {
	times := b.resales()
	if len(times) == 0 {
		return r
	}
	slices.Sort(times)
	ms := func(share float64) float64 { return float64(times[int(share*float64(len(times)-1))]) / 1000 }
	f := &r.figures.Reservations
	f.Resold, f.ResoldMedianMS, f.Resold95MS, f.ResoldLongestMS = int64(len(times)), ms(0.5), ms(0.95), ms(1)
	return r
}

// movement is a change of the units that are free, by the service's clock. A hold takes some.
type movement struct {
	at      int64
	units   int64
	expired bool
}

// resales returns how long each unit waited that expired while none was free, in microseconds. The first that expired
// is the first that is held again.
func (b *books) resales() (waited []int64) {
	for _, it := range b.items {
		free := it.initial
		var waiting []int64 // when each unit expired
		for _, m := range b.movements(it.id) {
			for range max(m.units, -m.units) {
				switch {
				case m.units > 0 && m.expired && free == 0:
					waiting = append(waiting, m.at)
				case m.units > 0 && m.expired && free < 0: // a hold was waiting for it
					waited = append(waited, 0)
					free++
				case m.units > 0:
					free++
				case len(waiting) > 0:
					waited = append(waited, m.at-waiting[0])
					waiting = waiting[1:]
				default:
					free--
				}
			}
		}
	}
	return waited
}

// movements returns what happened to the units of an item, in sequence. What comes back comes before what is taken at
// the same time.
func (b *books) movements(item int64) (all []movement) {
	for _, r := range b.reservations {
		if r.GoodsID != item || !r.known {
			continue
		}
		all = append(all, movement{at: r.CreatedUS, units: -r.Count})
		switch {
		case r.wasTold(history.Confirmed) || r.maybeConfirmed():
		case r.wasTold(history.Cancelled):
			if ended := r.endedUS(); ended > 0 {
				all = append(all, movement{at: ended, units: r.Count})
			}
		default:
			all = append(all, movement{at: r.ExpiresUS, units: r.Count, expired: true})
		}
	}
	slices.SortStableFunc(all, func(a, b movement) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.units, a.units))
	})
	return all
}

// endedUS is when the reservation ended, as the service tells it; 0: nobody was told.
func (r *reservation) endedUS() int64 {
	for _, e := range r.told {
		if e.EndedUS > 0 {
			return e.EndedUS
		}
	}
	return 0
}
