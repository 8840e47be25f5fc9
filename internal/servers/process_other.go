//go:build !linux

package servers

import "syscall"

// childAttr knows no death signal here: children outlive a parent that is killed.
func childAttr(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
