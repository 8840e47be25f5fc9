package servers

import "errors"

// CheckMount returns an error if this process may not mount a file system, as MySQLOptions.Disk needs.
func CheckMount() error {
	dir, err := NewDir("mount")
	if err != nil {
		return err
	}
	return errors.Join(mount(dir.File(mounted), 1<<20), dir.Remove())
}
