package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is a program to run as a child.
type Command struct {
	Name  string         // used in messages
	Path  string         // path of the program
	Args  []string       // arguments, without the program's name
	Argv0 string         // name to run the program under; Path if empty
	Dir   string         // directory that it starts in; that of this process if empty
	Env   []string       // environment; that of this process if nil
	Stdin io.Reader      // empty if nil
	Log   string         // file to which Start appends stdout and stderr
	Death syscall.Signal // sent to the child when this process dies, on Linux; SIGKILL if 0

	User *syscall.Credential // that it runs as; that of this process if nil
}

// Process is a child. It leads a process group of its own, so that Ctrl-C on the terminal does not reach it.
type Process struct {
	Name string
	PID  int
	Log  string // file with its output

	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// starter runs functions on one thread that lives as long as this process. To the kernel, the parent of a child is the
// thread that started it: if the Go runtime ended that thread, the child would get its death signal.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go startOnOneThread(jobs)
	return jobs
})

func startOnOneThread(jobs <-chan func()) {
	runtime.LockOSThread()
	for job := range jobs {
		job()
	}
}

// Start starts the command. On Linux the child dies with this process; Stop and Kill end it earlier.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close()

	cmd := c.cmd(context.Background())
	cmd.Stdout, cmd.Stderr = log, log
	if err := startChild(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, PID: cmd.Process.Pid, Log: c.Log, cmd: cmd, done: make(chan struct{})}
	go p.wait()
	return p, nil
}

// Run runs the command to its end and returns what it wrote to stdout and stderr. When ctx ends, the command and its
// descendants are killed. On Linux the command dies with this process.
func Run(ctx context.Context, c Command) (output []byte, err error) {
	var written bytes.Buffer
	cmd := c.cmd(ctx)
	cmd.Stdout, cmd.Stderr = &written, &written
	if err := startChild(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	err = cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w", c.Name, err)
	}
	return written.Bytes(), err
}

func (c Command) cmd(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	if c.Argv0 != "" {
		cmd.Args[0] = c.Argv0
	}
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdin = c.Stdin
	if c.Death == 0 {
		c.Death = syscall.SIGKILL
	}
	cmd.SysProcAttr = childAttr(c.Death)
	cmd.SysProcAttr.Credential = c.User
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	return cmd
}

// killGroup kills a child and its descendants: the child's PID is also the ID of their process group.
func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

func startChild(cmd *exec.Cmd) error {
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

func (p *Process) wait() {
	if p.err = p.cmd.Wait(); p.err == nil {
		p.err = errors.New("exit status 0")
	}
	// A killed process leaves its descendants behind, as nginx leaves its workers, and they keep its port. The kernel
	// does not reuse the PID while it is the ID of their group, and is unlikely to reuse it this soon otherwise.
	_ = killGroup(p.PID)
	close(p.done)
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended ("exit status 1", "signal: killed"), or nil while it is running.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal to the process. It fails with os.ErrProcessDone if the process has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Await calls ready until it returns nil. It fails when the process ends or ctx ends, or after a minute if ctx has no
// deadline. The error has the last lines of the process's output.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended before it was ready (%w); its log ends with:\n%s", p.Name, p.Err(), p.Tail(20))
		case <-ctx.Done():
			err = errors.Join(context.Cause(ctx), err)
			return fmt.Errorf("%s is not ready (%w); its log ends with:\n%s", p.Name, err, p.Tail(20))
		case <-tick.C:
		}
	}
}

// Restart kills the process if it is running (SIGKILL), starts the command in its place, and waits until it is ready.
func Restart(ctx context.Context, p **Process, c Command, ready func(context.Context) error) error {
	if *p != nil {
		(*p).Kill()
	}
	process, err := Start(c)
	if err != nil {
		return err
	}
	*p = process
	if err := process.Await(ctx, ready); err != nil {
		process.Kill()
		return err
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and waits until it has. If ctx ends first, or after ten seconds, Stop kills
// the process and returns an error. Stopping a process that has ended is not an error.
func (p *Process) Stop(ctx context.Context) error {
	if p.Signal(syscall.SIGTERM) != nil {
		return nil
	}
	_ = p.Signal(syscall.SIGCONT) // a stopped process would not handle SIGTERM
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s did not end on SIGTERM and was killed: %w", p.Name, ctx.Err())
	}
}

// ProcessState returns the state of a process as Linux shows it (proc_pid_stat(5)): 'T' if it is stopped.
func ProcessState(pid int) (state byte, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	end := bytes.LastIndexByte(stat, ')') // of the name of the program, which may contain anything
	if end < 0 || end+2 >= len(stat) {
		return 0, fmt.Errorf("/proc/%d/stat has no state: %q", pid, stat)
	}
	return stat[end+2], nil
}

// Children returns the ids of a process's children, on Linux.
func Children(pid int) (pids []int, err error) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(list)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, nil
}

// Kill kills the process and its descendants (SIGKILL) and waits until the process has ended.
func (p *Process) Kill() {
	if p.Err() == nil {
		_ = killGroup(p.PID) // fails if the process has just ended
	}
	<-p.done
}

// Tail returns the last lines of the process's output.
func (p *Process) Tail(lines int) string {
	const window = 16 << 10
	log, err := os.Open(p.Log)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > window {
		if _, err := log.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
