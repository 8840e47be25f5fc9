//go:build !linux

package tcpproxy

import "time"

type pauser struct{}

func (pauser) pause(d time.Duration) { time.Sleep(d) }

func (pauser) close() {}
