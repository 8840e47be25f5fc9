package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// detector finds violations of mutual exclusion. It is one word of memory, shared by all client processes, which names
// the contender inside the critical section.
type detector struct{ holder *atomic.Uint64 }

// newDetectorFile creates the memory behind a detector. It is freed when the last process closes it.
func newDetectorFile() (*os.File, error) {
	file, err := os.CreateTemp("", "stock-bench-*")
	if err != nil {
		return nil, fmt.Errorf("create shared memory: %w", err)
	}
	if err := file.Truncate(8); err != nil {
		return nil, fmt.Errorf("create shared memory: %w", err)
	}
	return file, os.Remove(file.Name())
}

func openDetector(file *os.File) (detector, error) {
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return detector{}, fmt.Errorf("map shared memory: %w", err)
	}
	return detector{(*atomic.Uint64)(unsafe.Pointer(&memory[0]))}, nil
}

// enter returns false if another contender is inside. id must not be 0.
func (d detector) enter(id uint64) bool { return d.holder.CompareAndSwap(0, id) }

// leave returns false if another contender has entered meanwhile.
func (d detector) leave(id uint64) bool { return d.holder.CompareAndSwap(id, 0) }
