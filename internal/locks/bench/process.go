package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"stock/internal/servers"
)

// outcome is what the client processes of one cell did, and Redis meanwhile.
type outcome struct {
	results  []result
	redisCPU time.Duration // of Redis
}

// runJobs runs all jobs at once on an empty Redis, each in a process of its own.
func runJobs(ctx context.Context, server *servers.Redis, jobs []job) (_ *outcome, err error) {
	client := newClient(server.Addr, &requests{})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	shared, err := newDetectorFile()
	if err != nil {
		return nil, err
	}
	defer shared.Close()

	var processes []*process
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, p.end(err != nil))
		}
	}()
	for _, j := range jobs {
		p, err := startProcess(ctx, j, shared)
		if err != nil {
			return nil, err
		}
		processes = append(processes, p)
	}
	for _, p := range processes {
		var word string
		if err := p.replies.Decode(&word); err != nil {
			return nil, fmt.Errorf("wait for a client to be ready: %w", err)
		}
	}
	before, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		if err := p.orders.Encode("go"); err != nil {
			return nil, fmt.Errorf("start a client: %w", err)
		}
	}
	results := make([]result, len(jobs))
	for i, p := range processes {
		if err := p.replies.Decode(&results[i]); err != nil {
			return nil, fmt.Errorf("read a client's result: %w", err)
		}
	}
	after, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return nil, err
	}
	return &outcome{results, redisCPU(after) - redisCPU(before)}, nil
}

// process is a client process.
type process struct {
	cmd     *exec.Cmd
	in      io.Closer
	orders  *json.Encoder
	replies *json.Decoder
}

func startProcess(ctx context.Context, j job, shared *os.File) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), asClient+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{shared}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C interrupts the parent only, which ends the clients
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	p := &process{cmd: cmd, in: in, orders: json.NewEncoder(in), replies: json.NewDecoder(out)}
	if err := p.orders.Encode(j); err != nil {
		return nil, errors.Join(fmt.Errorf("send a client its job: %w", err), p.end(true))
	}
	return p, nil
}

// end waits for the process to exit. If kill is set, it kills the process first and ignores its exit status.
func (p *process) end(kill bool) error {
	if kill {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

func redisCPU(info map[string]map[string]string) time.Duration {
	var seconds float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, _ := strconv.ParseFloat(info["CPU"][name], 64)
		seconds += n
	}
	return time.Duration(seconds * float64(time.Second))
}
