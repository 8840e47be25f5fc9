package size

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"stock/internal/servers"
)

// quotaPeriod is long, so that a station seldom stops. When MySQL stops every 10 ms, its threads wait for latches of
// each other, and it does not even use its quota: with 16 items and half a core, update sold a third less.
const quotaPeriod = 100 * time.Millisecond

// A Quota limits the CPU time of processes, by a cgroup of its own. It needs Linux and root.
type Quota struct {
	dir     string
	unified bool // cgroup v2
}

// NewQuota makes a cgroup without a limit, and moves the processes and their children into it.
func NewQuota(name string, pids []int) (*Quota, error) {
	q := &Quota{dir: filepath.Join("/sys/fs/cgroup/cpu", name)}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		q.dir, q.unified = filepath.Join("/sys/fs/cgroup", name), true
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("limits of CPU time need root and cgroups: %w", err)
		}
	}
	if err := os.Mkdir(q.dir, 0o755); err != nil {
		return nil, fmt.Errorf("limits of CPU time need root and cgroups: %w", err)
	}
	for _, pid := range pids {
		children, err := servers.Children(pid)
		for _, member := range append(children, pid) {
			err = cmp.Or(err, q.write("cgroup.procs", strconv.Itoa(member)))
		}
		if err != nil {
			return nil, errors.Join(err, q.Remove())
		}
	}
	return q, nil
}

// Limit limits the CPU time to so many cores; 0: no limit.
func (q *Quota) Limit(cores float64) error {
	period := strconv.FormatInt(quotaPeriod.Microseconds(), 10)
	quota := strconv.FormatInt(int64(cores*float64(quotaPeriod.Microseconds())), 10)
	switch {
	case q.unified && cores == 0:
		return q.write("cpu.max", "max")
	case q.unified:
		return q.write("cpu.max", quota+" "+period)
	case cores == 0:
		quota = "-1"
	}
	return errors.Join(q.write("cpu.cfs_period_us", period), q.write("cpu.cfs_quota_us", quota))
}

// Remove moves the processes to the root of the cgroups, and removes their own.
func (q *Quota) Remove() error {
	members, err := os.ReadFile(filepath.Join(q.dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	root := filepath.Join(filepath.Dir(q.dir), "cgroup.procs")
	for pid := range strings.FieldsSeq(string(members)) {
		_ = os.WriteFile(root, []byte(pid), 0) // a process that has ended cannot be moved
	}
	for range 100 { // a process that is ending is still there
		if err = os.Remove(q.dir); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func (q *Quota) write(file, value string) error {
	return os.WriteFile(filepath.Join(q.dir, file), []byte(value), 0)
}
