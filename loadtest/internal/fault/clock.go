package fault

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"stock/internal/servers"
)

// A library that sets the wall clock of a process. It is C, because it takes the place of functions of libc.
//
//go:embed clock/clock.c
var clockSource []byte

// clockedRedis is a Redis whose wall clock a story sets.
type clockedRedis struct {
	*servers.Redis
	offset *os.File // of its clock, which the library reads
}

// noClocks returns why the clock of a Redis cannot be set here.
func noClocks(ctx context.Context) string {
	if runtime.GOOS != "linux" {
		return "the library that sets the clock of a process is made for Linux"
	}
	dir, err := servers.NewDir("clock")
	if err != nil {
		return err.Error()
	}
	defer dir.Remove() //nolint:errcheck // the next NewDir removes what is left
	if _, err := compileClock(ctx, dir); err != nil {
		return "the library that sets the clock of a process needs a C compiler: " + err.Error()
	}
	return ""
}

// compileClock compiles the library, and returns its path.
func compileClock(ctx context.Context, dir *servers.Dir) (library string, err error) {
	source, library := dir.File("clock.c"), dir.File("clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	if err != nil {
		first, _, _ := bytes.Cut(output, []byte("\n"))
		return "", fmt.Errorf("cc: %w: %s", err, first)
	}
	return library, nil
}

// startClocked starts n servers, each with a clock of its own. stop must be called even after an error.
func startClocked(ctx context.Context, n int) (started []*clockedRedis, stop func(context.Context) error, err error) {
	dir, err := servers.NewDir("clock")
	if err != nil {
		return nil, func(context.Context) error { return nil }, err
	}
	stop = func(ctx context.Context) error {
		var errs []error
		for _, r := range started {
			errs = append(errs, r.Stop(ctx), r.offset.Close())
		}
		return errors.Join(append(errs, dir.Remove())...)
	}
	library, err := compileClock(ctx, dir)
	for i := 0; i < n && err == nil; i++ {
		var r *clockedRedis
		if r, err = startOneClocked(ctx, fmt.Sprintf("redis-%d", i+1), dir, library); err == nil {
			started = append(started, r)
		}
	}
	return started, stop, err
}

func startOneClocked(ctx context.Context, name string, dir *servers.Dir, library string) (*clockedRedis, error) {
	offset, err := os.Create(dir.File(name))
	if err != nil {
		return nil, err
	}
	r := &clockedRedis{offset: offset}
	err = r.setOffset(0)
	if err == nil {
		r.Redis, err = servers.StartRedis(ctx, servers.RedisOptions{
			Name: name, Env: []string{"LD_PRELOAD=" + library, "STOCK_CLOCK=" + offset.Name()},
		})
	}
	if err != nil {
		return nil, errors.Join(err, offset.Close())
	}
	return r, nil
}

// setOffset makes the clock differ from that of the machine by seconds. The server reads the file at every look at the
// clock, so it must never be empty.
func (r *clockedRedis) setOffset(seconds int64) error {
	_, err := r.offset.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(seconds)), 0)
	return err
}

// setClock lets the clock jump, and checks that the server sees it.
func (r *clockedRedis) setClock(ctx context.Context, ahead time.Duration) error {
	if err := r.setOffset(int64(ahead.Seconds())); err != nil {
		return err
	}
	client := openRedis(r.Addr)
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
