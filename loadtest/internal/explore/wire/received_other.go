//go:build !linux

package wire

import "syscall"

// received is known only on Linux.
func received(syscall.Conn) (bytes int64, connections int, ok bool) { return 0, 0, false }
