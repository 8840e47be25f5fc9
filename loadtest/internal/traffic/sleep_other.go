//go:build !linux

package traffic

import "time"

func (c Clock) sleepUntil(ns int64) { time.Sleep(time.Duration(ns - c.Now())) }
