package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// received returns how many bytes have arrived on a connection, read or not, and of a listener, how many connections
// nobody has accepted yet. ok is false if that is unknown, for one because it is closed.
func received(on syscall.Conn) (bytes int64, connections int, ok bool) {
	raw, err := on.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) })
	if failed != nil || err != nil {
		return 0, 0, false
	}
	return int64(info.Bytes_received), int(info.Unacked), true
}
