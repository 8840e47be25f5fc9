package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// longestBase leaves room for "/<name>-<random>/mysql.sock": the path of a Unix socket is limited to 104 bytes.
const longestBase = 60

// mounted is the name of the entry of a Dir that may be a file system of its own.
const mounted = "data"

// Dir is a temporary directory of this process. If the process is killed, the next NewDir of any process removes it.
type Dir struct {
	Path string
	lock *os.File
}

// NewDir makes a directory whose name starts with name, and removes those left by processes that were killed.
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
	// While this process holds the guard, no other sweeps away the directory before its lock is taken.
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

// Remove deletes the directory and its content.
func (d *Dir) Remove() error {
	defer d.lock.Close()
	return remove(d.Path)
}

func remove(path string) error {
	_ = unmount(filepath.Join(path, mounted)) // fails if nothing is mounted
	return os.RemoveAll(path)
}

// ownDir returns a directory of this user in the system's directory for temporary files, or in /tmp if that path would
// be too long for sockets.
func ownDir(name string) (string, error) {
	temp := os.TempDir()
	if len(temp)+1+len(name) > longestBase {
		temp = "/tmp"
	}
	path := filepath.Join(temp, name)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// Everyone may write to /tmp: another user could have made the directory.
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a directory of this user: remove it or set TMPDIR", path)
	}
	return path, nil
}

// sweep removes the directories under base whose process has ended, which released its lock on them. A directory
// without a lock file has no owner either: its process was killed before it made the file, or is removing the directory
// now.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		path := filepath.Join(base, entry.Name())
		if !entry.IsDir() {
			continue
		}
		// The lock file is not created here: a process that is removing the directory would find it not empty.
		lock, err := lockFile(filepath.Join(path, "lock"), 0, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		_ = remove(path)
		if lock != nil {
			lock.Close()
		}
	}
}

// lockFile opens the file, and creates it if flag is os.O_CREATE. The lock lasts until the file is closed or this
// process ends; children do not inherit it.
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
