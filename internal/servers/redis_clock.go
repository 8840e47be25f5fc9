package servers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A library that sets the wall clock of a process. It is C, because it takes the place of functions of libc.
//
//go:embed clock/clock.c
var clockSource []byte

// prepareClock compiles the library, and returns the environment for a server whose clock SetClock sets.
func (r *Redis) prepareClock(ctx context.Context) (env []string, err error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the library that sets the clock of a process %w: it is made for Linux", ErrNotInstalled)
	}
	source, library := r.dir.File("clock.c"), r.dir.File("clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	if err != nil {
		first, _, _ := bytes.Cut(output, []byte("\n"))
		return nil, fmt.Errorf("the library that sets the clock of a process %w: it needs a C compiler: cc: %w: %s",
			ErrNotInstalled, err, first)
	}
	r.clock = r.dir.File("clock")
	return []string{"LD_PRELOAD=" + library, "STOCK_CLOCK=" + r.clock}, r.setOffset(0)
}

// setOffset makes the clock differ from that of the machine. The server reads the file at every look at the clock, so
// it must never be empty.
func (r *Redis) setOffset(ahead time.Duration) error {
	file, err := os.OpenFile(r.clock, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead.Seconds()))), 0)
	return err
}

// SetClock lets the wall clock of a server with RedisOptions.Clock jump, and checks that it sees that.
func (r *Redis) SetClock(ctx context.Context, ahead time.Duration) error {
	if err := r.setOffset(ahead); err != nil {
		return err
	}
	client := r.client()
	defer client.Close()
	says, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	if off := time.Until(says) - ahead; off.Abs() > time.Minute {
		return fmt.Errorf("%s ignores the clock: TIME says %s", r.Name, says.Format(time.TimeOnly))
	}
	return nil
}
