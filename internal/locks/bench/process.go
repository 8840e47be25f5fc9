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
	"strings"
	"syscall"
	"time"

	"stock/internal/servers"
)

// ran is what the client processes of one measurement did, and Redis meanwhile.
type ran struct {
	results  []result
	executed int64         // commands that Redis carried out, those called by scripts among them
	redisCPU time.Duration // of Redis
}

// runJobs runs each job in a process of its own, all at once, on an empty Redis.
func runJobs(ctx context.Context, server *servers.Redis, jobs []job) (_ *ran, err error) {
	client := newClient(server.Addr, &requests{})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	shared, err := newRoom()
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
	before, err := client.InfoMap(ctx, "commandstats", "cpu").Result()
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
	after, err := client.InfoMap(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return nil, err
	}
	return &ran{results, calls(after) - calls(before), redisCPU(after) - redisCPU(before)}, nil
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent, who ends the clients
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
	p := &process{cmd, in, json.NewEncoder(in), json.NewDecoder(out)}
	if err := p.orders.Encode(j); err != nil {
		return nil, errors.Join(fmt.Errorf("give a client its job: %w", err), p.end(true))
	}
	return p, nil
}

// end waits until the process has ended. One that has failed, or whose result nobody wants, is killed; how it ended then
// says nothing new.
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

// calls sums up the calls of INFO commandstats but those of setUp ("cmdstat_client|info": {"calls": ...}).
func calls(info map[string]map[string]string) (sum int64) {
	for name, figures := range info["Commandstats"] {
		command, _, _ := strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|")
		if setUp[command] {
			continue
		}
		first, _, _ := strings.Cut(figures, ",") // calls=12,usec=34,...
		n, _ := strconv.ParseInt(strings.TrimPrefix(first, "calls="), 10, 64)
		sum += n
	}
	return sum
}

func redisCPU(info map[string]map[string]string) time.Duration {
	var seconds float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, _ := strconv.ParseFloat(info["CPU"][name], 64)
		seconds += n
	}
	return time.Duration(seconds * float64(time.Second))
}
