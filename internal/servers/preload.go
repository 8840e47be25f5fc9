package servers

import (
	"bytes"
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Libraries that take the place of functions of libc, and so are in C.
//
//go:embed preload/*.c
var librarySources embed.FS

// A library changes what a process sees of the machine, by a number that may change at any time.
type library struct {
	env    []string // for the process
	number string   // file that the process reads the number from; it is never empty
}

// prepareLibrary compiles the library of this name, which the process finds by a variable.
func prepareLibrary(ctx context.Context, dir *Dir, name, variable string) (*library, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the library %s %w: it is made for Linux", name, ErrNotInstalled)
	}
	text, err := librarySources.ReadFile("preload/" + name + ".c")
	if err != nil {
		return nil, err
	}
	source, compiled := dir.File(name+".c"), dir.File(name+".so")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-o", compiled, source).CombinedOutput()
	if err != nil {
		first, _, _ := bytes.Cut(output, []byte("\n"))
		return nil, fmt.Errorf("the library %s %w: it needs a C compiler: cc: %w: %s", name, ErrNotInstalled, err, first)
	}
	l := &library{number: dir.File(name)}
	l.env = []string{"LD_PRELOAD=" + compiled, variable + "=" + l.number}
	return l, l.set(0)
}

func (l *library) set(number int64) error {
	if l == nil {
		return errors.New("the server was started without the library for this")
	}
	file, err := os.OpenFile(l.number, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(number)), 0)
	return err
}
