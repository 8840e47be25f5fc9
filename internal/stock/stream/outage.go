package stream

import (
	"log/slog"
	"time"
)

// The first and the longest pause after a failure. Each is twice the one before, up to the longest.
const firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second

// outage logs when a task begins to fail and when it works again, and says how long to pause between tries.
type outage struct {
	log   *slog.Logger
	task  string
	pause time.Duration
}

// report takes the result of a try. It returns a channel that tells when to try again after a failure, and nil after a
// success.
func (o *outage) report(err error) <-chan time.Time {
	switch {
	case err == nil:
		if o.pause > 0 {
			o.log.Info("works again: " + o.task)
		}
		o.pause = 0
		return nil
	case o.pause == 0:
		o.log.Warn("cannot "+o.task+": trying again until it works", "error", err)
		o.pause = firstPause
	default:
		o.pause = min(2*o.pause, longestPause)
	}
	return time.After(o.pause)
}
