package servers

import (
	"context"
	"fmt"
	"time"
)

// SetClock lets the wall clock of a server with RedisOptions.Clock jump, and checks that it sees that.
func (r *Redis) SetClock(ctx context.Context, ahead time.Duration) error {
	if err := r.clock.set(int64(ahead.Seconds())); err != nil {
		return err
	}
	client := r.client()
	defer client.Close()
	says, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	if off := time.Until(says) - ahead; off.Abs() > time.Minute {
		return fmt.Errorf("%s ignores the clock: TIME says %s", r.Name, says.Format(time.TimeOnly))
	}
	return nil
}
