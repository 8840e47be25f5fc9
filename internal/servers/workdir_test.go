package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
)

func makeAndRemove(context.Context) error {
	for range 200 {
		dir, err := servers.NewDir("loop")
		if err != nil {
			return err
		}
		if err := os.WriteFile(dir.File("data"), nil, 0o600); err != nil {
			return fmt.Errorf("another process removed the directory: %w", err)
		}
		if err := dir.Remove(); err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesMakeAndRemoveDirectoriesConcurrently(t *testing.T) {
	t.Parallel()
	temp, err := os.MkdirTemp("", "dirs") // the path of t.TempDir is too long for sockets
	must.Succeed(t, err)
	defer os.RemoveAll(temp)
	var processes []*osexec.Cmd
	for range 6 {
		cmd := process(t, "makes and removes", "TMPDIR="+temp)
		must.Succeed(t, cmd.Start())
		processes = append(processes, cmd)
	}
	for _, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a process failed: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*", "*-*")); err != nil || len(left) > 0 {
		t.Errorf("these directories still exist: %v %v", left, err)
	}
}

func TestDirectoryOfAProcessKilledBeforeItTookTheLockIsRemoved(t *testing.T) {
	t.Parallel()
	first := newDir(t, "first")
	killed, err := os.MkdirTemp(filepath.Dir(first.Path), "killed-")
	must.Succeed(t, err)
	newDir(t, "second")
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the killed process still exists: %v", err)
	}
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the directory of a running process was removed: %v", err)
	}
}

// newDir makes a directory for this test.
func newDir(t *testing.T, name string) *servers.Dir {
	t.Helper()
	dir, err := servers.NewDir(name)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, dir.Remove()) })
	return dir
}
