package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

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

func TestProcessesMakeAndRemoveDirectoriesSideBySide(t *testing.T) {
	t.Parallel()
	temp, err := os.MkdirTemp("", "dirs") // t.TempDir's name is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	var processes []*osexec.Cmd
	for range 6 {
		cmd := process(t, "makes and removes", "TMPDIR="+temp)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
	}
	for _, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a process fails: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*", "*-*")); err != nil || len(left) > 0 {
		t.Errorf("directories are left: %v %v", left, err)
	}
}

func TestADirectoryWhoseProcessWasKilledBeforeItLockedItIsRemoved(t *testing.T) {
	t.Parallel()
	first, err := servers.NewDir("first")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Remove()
	killed, err := os.MkdirTemp(filepath.Dir(first.Path), "killed-")
	if err != nil {
		t.Fatal(err)
	}
	second, err := servers.NewDir("second")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Remove()
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the directory of a process that runs is gone: %v", err)
	}
}
