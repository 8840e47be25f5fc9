//go:build !linux

package monotonic

import "time"

func (c clock) block(ns int64) { time.Sleep(time.Duration(ns - c.now())) }
