package servers

import "syscall"

// childAttr makes the child lead a process group of its own and get the signal when its parent dies.
func childAttr(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}
