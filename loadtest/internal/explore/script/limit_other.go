//go:build !linux

package script

import "runtime/debug"

// limitMemory only has garbage collected early: other systems have no limit for what a process allocates.
func limitMemory() error {
	debug.SetMemoryLimit(mostMemory)
	return nil
}
