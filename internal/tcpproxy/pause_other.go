//go:build !linux

package tcpproxy

import "time"

// A pauser may wait a millisecond too long.
type pauser struct{}

func (pauser) pause(d time.Duration) { time.Sleep(d) }

func (pauser) close() {}
