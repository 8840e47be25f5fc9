package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"stock/internal/servers"
)

// Replica is one process of the service. It is not safe for concurrent use.
type Replica struct {
	Name     string `json:"name"`
	URL      string `json:"url"`       // past nginx
	AdminURL string `json:"admin_url"` // empty where it is not known
	PID      int    `json:"pid"`       // 0 where it is not known

	command servers.Command
	process *servers.Process // nil before the first start
}

// errForeign is the answer to a fault for a replica that was started elsewhere.
var errForeign = errors.New("this process did not start it, and cannot break it")

// newReplica prepares the i-th replica and does not start it.
func (t *Topology) newReplica(binary string, i int, o Options) (*Replica, error) {
	name := "replica-" + strconv.Itoa(i+1)
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := o.adminListen(i)
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--replica=" + name, "--listen=" + listen, "--admin-listen=" + admin,
		"--redis=" + strings.Join(t.Redis, ","), "--redlock=" + strings.Join(t.Redlock, ","),
		"--drain-timeout=5s",
	}
	if o.PausePoints {
		args = append(args, "--pause-points")
	}
	return &Replica{
		Name: name, URL: "http://" + listen, AdminURL: "http://" + admin,
		command: servers.Command{
			Name: name,
			Path: binary,
			Args: append(args, o.ReplicaArgs...),
			Env:  stockEnv(t.MySQLDSN),
			Log:  t.dir.File(name + ".log"),
		},
	}, nil
}

// adminListen is where the i-th replica's admin listener goes.
func (o Options) adminListen(i int) (string, error) {
	if o.AdminListen == "" {
		return freeAddr()
	}
	host, port, err := net.SplitHostPort(o.AdminListen)
	if err != nil {
		return "", err
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		return "", fmt.Errorf("port of %s: %w", o.AdminListen, err)
	}
	return net.JoinHostPort(host, strconv.Itoa(first+i)), nil
}

// stockEnv hands over the DSN, which has a password, where other users of the host cannot read it. What this process's
// own environment says to the service is for another one.
func stockEnv(dsn string) []string {
	env := []string{"STOCK_MYSQL_DSN=" + dsn}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STOCK_") {
			env = append(env, entry)
		}
	}
	return env
}

// Restart kills the replica if it runs (SIGKILL), starts it on the same ports, and waits until it is ready.
func (r *Replica) Restart(ctx context.Context) error {
	if r.command.Path == "" {
		return fmt.Errorf("restart %s: %w", r.Name, errForeign)
	}
	if r.process != nil {
		r.process.Kill()
	}
	process, err := servers.Start(r.command)
	if err != nil {
		return err
	}
	r.process, r.PID = process, process.PID
	return process.Await(ctx, r.ready)
}

func (r *Replica) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("/readyz answers %s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return err
}

// Kill ends the replica at once (SIGKILL).
func (r *Replica) Kill() error {
	if r.process == nil {
		return fmt.Errorf("kill %s: %w", r.Name, errForeign)
	}
	r.process.Kill()
	return nil
}

// Pause stops the replica in the middle of whatever it does (SIGSTOP).
func (r *Replica) Pause() error { return r.signal(syscall.SIGSTOP) }

// Continue lets a paused replica go on (SIGCONT).
func (r *Replica) Continue() error { return r.signal(syscall.SIGCONT) }

func (r *Replica) signal(signal syscall.Signal) error {
	if r.process == nil {
		return fmt.Errorf("signal %s: %w", r.Name, errForeign)
	}
	return r.process.Signal(signal)
}

// Stop asks the replica to finish its requests and end (SIGTERM), and waits for that.
func (r *Replica) Stop(ctx context.Context) error {
	if r.process == nil {
		return fmt.Errorf("stop %s: %w", r.Name, errForeign)
	}
	return r.process.Stop(ctx)
}

// Tail returns the last lines of the replica's log.
func (r *Replica) Tail(lines int) string {
	if r.process == nil {
		return ""
	}
	return r.process.Tail(lines)
}

// migrate lays out the service's database.
func (t *Topology) migrate(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, binary, "migrate", "--redis="+strings.Join(t.Redis, ","))
	cmd.Env = stockEnv(t.MySQLDSN)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("stock migrate: %w:\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// stockBinary finds the service: the one asked for, else the one beside this program, else one built from the source.
func (t *Topology) stockBinary(ctx context.Context, path string) (string, error) {
	if path != "" {
		return exec.LookPath(path)
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "stock")); err == nil {
			return beside, nil
		}
	}
	built := t.dir.File("stock")
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", built, "stock/cmd/stock").CombinedOutput(); err != nil {
		return "", fmt.Errorf("no stock program is beside this one, and building it failed: %w:\n%s", err, strings.TrimSpace(string(output)))
	}
	return built, nil
}
