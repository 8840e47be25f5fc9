package load

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// lapseTime is how long the units of expired reservations may be missing from the stock when nobody asks for them. It
// is generous: if somebody asks, they must be free at once.
const lapseTime = 5 * time.Second

// awaitLapse waits until every reservation has expired and its units are back in the stock, or should be. Then it reads
// all reservations.
func (c *cellRun) awaitLapse(ctx context.Context) error {
	if c.load.HoldFor == 0 {
		return nil
	}
	expired := LastExpiry(c.result.Ops)
	confirmed := ConfirmedUnits(c.result.Ops)
	for deadline := expired + int64(min(lapseTime, c.patience.limit)); ; {
		stock, err := c.stock.read(ctx, c.mix.Goods())
		if err != nil {
			return err
		}
		back := true
		for id, units := range stock {
			back = back && units == c.header.Initial[id]-confirmed[id]
		}
		if now := monotonic.Now(); now >= deadline || back && now >= expired {
			break
		}
		if err := monotonic.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	c.drivers[c.row.Replicas].ReadReservations(ctx, c.load, &c.result)
	return nil
}

// LastExpiry is when every reservation has expired that is not known to be confirmed, in CLOCK_MONOTONIC nanoseconds. A
// request whose client gave up may still take effect in the service.
func LastExpiry(calls []history.Op) (expired int64) {
	confirmed := map[string]bool{}
	for _, call := range calls {
		if call.State == history.Confirmed {
			confirmed[call.Reservation] = true
		}
	}
	for _, call := range calls {
		if call.Kind != history.Hold || call.Outcome != history.Done && call.Outcome != history.Unknown ||
			confirmed[call.Reservation] {
			continue
		}
		last := call.ReceivedNS + call.TTLMS*int64(time.Millisecond)
		if call.Error == traffic.TimedOut || call.Status == http.StatusGatewayTimeout {
			last += int64(usualPatience.service)
		}
		expired = max(expired, last)
	}
	return expired
}

// ConfirmedUnits sums the units of confirmed reservations, by item.
func ConfirmedUnits(calls []history.Op) map[int64]int64 {
	units, known := map[int64]int64{}, map[string]bool{}
	for _, call := range calls {
		state := cmp.Or(call.State, call.Error)
		if id := call.Reservation; !known[id] && (state == history.Confirmed || state == history.ProblemConfirmed) {
			known[id] = true
			units[call.GoodsID] += call.Count
		}
	}
	return units
}
