package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

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
func (t *Topology) newReplica(i int, o Options) (*Replica, error) {
	name := "replica-" + strconv.Itoa(i+1)
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := addr(o.AdminListen, i)
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--replica=" + name, "--listen=" + listen, "--admin-listen=" + admin,
		"--redis=" + strings.Join(t.Redis, ","), "--redlock=" + strings.Join(t.Redlock, ","),
		"--drain-timeout=5s", "--max-hold=10s",
	}
	if len(t.Etcd) > 0 {
		args = append(args, "--etcd="+strings.Join(t.Etcd, ","))
	}
	if len(t.ZooKeeper) > 0 {
		args = append(args, "--zookeeper="+strings.Join(t.ZooKeeper, ","))
	}
	if o.PausePoints {
		args = append(args, "--pause-points")
	}
	return &Replica{
		Name: name, URL: "http://" + listen, AdminURL: "http://" + admin,
		command: servers.Command{
			Name: name,
			Path: t.StockBinary,
			Args: append(args, o.ReplicaArgs...),
			Env:  stockEnv(t.MySQLDSN),
			Log:  t.dir.File(name + ".log"),
		},
	}, nil
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
func (t *Topology) migrate(ctx context.Context) error {
	output, err := servers.Run(ctx, servers.Command{
		Name: "stock migrate",
		Path: t.StockBinary,
		Args: []string{"migrate", "--redis=" + strings.Join(t.Redis, ",")},
		Env:  stockEnv(t.MySQLDSN),
	})
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// findStock finds the service: the one asked for, else the one that was built together with this program, else one that
// is built from the source now, as under `go run`.
func (t *Topology) findStock(ctx context.Context, asked string) (path string, err error) {
	if asked != "" {
		return exec.LookPath(asked)
	}
	if self, err := os.Executable(); err == nil {
		if path, found := builtWith(self); found {
			return path, nil
		}
	}
	path = t.dir.File("stock")
	output, err := servers.Run(ctx, servers.Command{
		Name: "go build",
		Path: "go",
		Args: []string{"build", "-trimpath", "-o", path, "stock/cmd/stock"},
		Env:  append(os.Environ(), "CGO_ENABLED=0"), // as `make build` does
	})
	if err != nil {
		return "", fmt.Errorf("no stock program of this one's age is beside it, and building one failed: run \"make build\" or give --stock-binary: %w:\n%s",
			err, strings.TrimSpace(string(output)))
	}
	return path, nil
}

// sameBuild is how much earlier one `go build` may have written stock than loadtest. It touches what is up to date.
const sameBuild = time.Minute

// builtWith returns the stock beside this program. One that was built earlier is passed over: it may be of another source,
// and would be measured without a word.
func builtWith(self string) (path string, found bool) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "stock"))
	if err != nil {
		return "", false
	}
	own, ownErr := os.Stat(self)
	info, err := os.Stat(path)
	return path, ownErr == nil && err == nil && own.ModTime().Sub(info.ModTime()) <= sameBuild
}
