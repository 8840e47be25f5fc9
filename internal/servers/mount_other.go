//go:build !linux

package servers

import (
	"errors"
	"fmt"
)

func mount(path string, _ int64) error {
	return fmt.Errorf("mount a file system in memory at %s: %w: this needs Linux", path, errors.ErrUnsupported)
}

func unmount(string) error { return errors.ErrUnsupported }
