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
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is a program to run as a child.
type Command struct {
	Name  string         // for messages
	Path  string         // of the program
	Args  []string       // without the program's name
	Argv0 string         // the program's name, for programs that behave by it; Path where empty
	Env   []string       // environment; this process's own where nil
	Stdin io.Reader      // nothing where nil
	Log   string         // file that Start appends the child's stdout and stderr to
	Death syscall.Signal // what the child gets when this process dies, on Linux; SIGKILL where 0
}

// Process is a running child in a process group of its own, so that Ctrl-C on the terminal reaches this process only.
type Process struct {
	Name string
	PID  int
	Log  string // the file of its output

	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// starter runs functions on one thread that lives as long as this process. The kernel takes a child's parent to be the
// thread that started it: without this, a child would die whenever the Go runtime retires that thread.
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

// Start runs the command. The child dies with this process; see Stop and Kill for ending it earlier.
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

// Run runs the command to its end and returns what it wrote to stdout and stderr. The command dies with this process, and
// is killed with those it started when ctx ends.
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
	cmd.Env = c.Env
	cmd.Stdin = c.Stdin
	if c.Death == 0 {
		c.Death = syscall.SIGKILL
	}
	cmd.SysProcAttr = childAttr(c.Death)
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	return cmd
}

// killGroup ends a child and those it started: the child's group has its number.
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
	// One that was killed left those it started behind, with its port: nginx its workers. Nobody gets its number while they
	// have it as their group's, and at once nobody else does either.
	killGroup(p.PID)
	close(p.done)
}

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended ("exit status 1", "signal: killed"); nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal to the process; os.ErrProcessDone where it has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Await asks until it gets no error: the process is ready. It gives up when the process ends, when ctx ends, and after a
// minute; the error then has the last lines of the process's output.
func (p *Process) Await(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended before it was ready (%w); its log ends with:\n%s", p.Name, p.Err(), p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w); its log ends with:\n%s", p.Name, errors.Join(context.Cause(ctx), err), p.Tail(20))
		case <-tick.C:
		}
	}
}

// restart kills the process if it runs (SIGKILL), starts the command in its place, and waits until it is ready.
func restart(ctx context.Context, p **Process, c Command, ready func(context.Context) error) error {
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

// Stop asks the process to end (SIGTERM) and waits for it. When ctx ends first, or after ten seconds, it is killed.
// The error says that it had to be. Stopping what has ended is no error.
func (p *Process) Stop(ctx context.Context) error {
	if p.Signal(syscall.SIGTERM) != nil {
		return nil
	}
	p.Signal(syscall.SIGCONT) // one that is stopped would not see SIGTERM
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

// Kill ends the process and those it started at once (SIGKILL to its group), and waits until it is gone.
func (p *Process) Kill() {
	if p.Err() == nil {
		killGroup(p.PID)
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
		log.Seek(-window, io.SeekEnd)
	}
	text, err := io.ReadAll(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
