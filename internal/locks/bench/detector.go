package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// room has place for one. It is one word of memory that all processes share: whoever holds the lock enters, and finds
// nobody there unless the lock let two in.
type room struct{ holder *atomic.Uint64 }

// newRoom makes the file behind a room. It is gone when the last process has closed it.
func newRoom() (*os.File, error) {
	file, err := os.CreateTemp("", "stock-bench-*")
	if err != nil {
		return nil, fmt.Errorf("make memory to share: %w", err)
	}
	if err := file.Truncate(8); err != nil {
		return nil, fmt.Errorf("make memory to share: %w", err)
	}
	return file, os.Remove(file.Name())
}

func openRoom(file *os.File) (room, error) {
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return room{}, fmt.Errorf("share memory: %w", err)
	}
	return room{(*atomic.Uint64)(unsafe.Pointer(&memory[0]))}, nil
}

// enter returns false where somebody is inside. id is not 0.
func (r room) enter(id uint64) bool { return r.holder.CompareAndSwap(0, id) }

// leave returns false where another has come in meanwhile.
func (r room) leave(id uint64) bool { return r.holder.CompareAndSwap(id, 0) }
