package servers

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// mount makes a directory for a file system in memory of the given size in bytes.
func mount(path string, size int64) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	options := "mode=700,size=" + strconv.FormatInt(size, 10)
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mount a file system in memory at %s, which needs root: %w", path, err)
	}
	return nil
}

// unmount removes the file system at once, even if a process that has just been killed still uses it. It fails if there
// is none.
func unmount(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) }
