package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// longestBase leaves room for "/<name>-<random>/mysql.sock" in the 104 bytes that a Unix socket's path may have.
const longestBase = 60

// Dir is a temporary directory that belongs to this process. One whose process was killed is removed by the next NewDir.
type Dir struct {
	Path string
	lock *os.File
}

// NewDir makes a directory whose name starts with name.
func NewDir(name string) (*Dir, error) {
	dir, err := newDir(name)
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory for %s: %w", name, err)
	}
	return dir, nil
}

func newDir(name string) (*Dir, error) {
	base, err := ownDir("stock-" + strconv.Itoa(os.Getuid()))
	if err != nil {
		return nil, err
	}
	// Nobody sweeps between the making of a directory and its locking.
	guard, err := lockFile(filepath.Join(base, "lock"), os.O_CREATE, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	sweep(base)

	path, err := os.MkdirTemp(base, name+"-")
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(path, "lock"), os.O_CREATE, syscall.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Dir{Path: path, lock: lock}, nil
}

// File returns the path of a file in the directory.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Remove deletes the directory with all that is in it.
func (d *Dir) Remove() error {
	defer d.lock.Close()
	return os.RemoveAll(d.Path)
}

// ownDir returns a directory of this user in the system's directory for temporary files, or in /tmp where that one's
// name is too long for sockets.
func ownDir(name string) (string, error) {
	temp := os.TempDir()
	if len(temp)+1+len(name) > longestBase {
		temp = "/tmp"
	}
	path := filepath.Join(temp, name)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// Everyone may write to /tmp: the directory could be someone else's trap.
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a directory of this user: remove it or set TMPDIR", path)
	}
	return path, nil
}

// sweep removes the directories under base whose process is gone: the kernel dropped its lock on them. One without a lock
// file is nobody's: its process was killed before it made the file, or is removing the directory this moment.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		path := filepath.Join(base, entry.Name())
		if !entry.IsDir() {
			continue
		}
		// The file is not made here: whoever is removing the directory would find it not empty.
		lock, err := lockFile(filepath.Join(path, "lock"), 0, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		os.RemoveAll(path)
		if lock != nil {
			lock.Close()
		}
	}
}

// lockFile opens the file, or makes it where flag is os.O_CREATE, and locks it until it is closed or this process ends.
// Children do not inherit it.
func lockFile(path string, flag, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return file, nil
	}
}
