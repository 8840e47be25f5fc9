//go:build !linux

package servers

import "syscall"

// childAttr ignores the death signal, which only Linux has: here, children outlive a parent that is killed.
func childAttr(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
