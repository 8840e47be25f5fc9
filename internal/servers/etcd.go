package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// EtcdOptions configures StartEtcd. The zero value is as durable as etcd is by default: every write is flushed.
type EtcdOptions struct {
	Name    string        // used in messages; "etcd" if empty
	Relaxed bool          // flushes nothing, from version 3.5 on. For tests, never for measurements.
	History time.Duration // how long earlier revisions of keys are kept, about; one minute if 0
	TLS     *TLS          // for clients, which must have a certificate, not between members; without TLS if nil
	Args    []string      // additional arguments, such as "--heartbeat-interval=50"
}

// Etcd is a private etcd server: a cluster of its own, or a member of an EtcdCluster. It has no password, but listens
// on loopback only.
type Etcd struct {
	Addr    string // host:port for clients
	Version string // "etcd 3.4.23"
	*Process

	peer    string // host:port for other members
	client  *http.Client
	scheme  string // of client URLs
	command Command
	dir     *Dir
}

// StartEtcd starts an etcd server and waits until it is its own leader and answers.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	if o.Name == "" {
		o.Name = "etcd"
	}
	e, err := newEtcd(ctx, o)
	if err != nil {
		return nil, err
	}
	e.join(e.peer, o.Name+"=http://"+e.peer)
	if err := e.Restart(ctx); err != nil {
		return nil, errors.Join(err, e.Stop(ctx))
	}
	return e, nil
}

// newEtcd prepares a server that has not joined a cluster.
func newEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	path, version, err := findEtcd(ctx)
	if err != nil {
		return nil, err
	}
	client, err := FreePort()
	if err != nil {
		return nil, err
	}
	peer, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("etcd")
	if err != nil {
		return nil, err
	}
	e := &Etcd{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(client)), Version: version,
		peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(peer)), dir: dir, client: http.DefaultClient, scheme: "http",
	}
	if o.TLS != nil {
		config, err := o.TLS.client()
		if err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
		e.client, e.scheme = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, "https"
	}
	e.command = Command{
		Name: o.Name, Path: path, Args: e.args(o), Env: etcdEnv(), Log: dir.File("etcd.log"),
	}
	if o.Relaxed && knowsUnsafeNoFsync(ctx, path) {
		e.command.Args = append(e.command.Args, "--unsafe-no-fsync")
	}
	e.command.Args = append(e.command.Args, o.Args...)
	return e, nil
}

func (e *Etcd) args(o EtcdOptions) []string {
	if o.History == 0 {
		o.History = time.Minute
	}
	args := []string{
		"--name=" + o.Name, "--data-dir=" + e.dir.File("data"),
		"--listen-client-urls=" + e.scheme + "://" + e.Addr, "--advertise-client-urls=" + e.scheme + "://" + e.Addr,
		"--listen-peer-urls=http://" + e.peer,
		// Without compaction the history would fill the space quota. The mode revision compacts only every five minutes.
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=" + o.History.String(),
	}
	if o.TLS != nil {
		args = append(args, "--client-cert-auth", "--trusted-ca-file="+o.TLS.CA,
			"--cert-file="+o.TLS.Cert, "--key-file="+o.TLS.Key)
	}
	return args
}

// join adds the arguments with which the server joins the cluster; the others reach it at addr.
func (e *Etcd) join(addr, cluster string) {
	e.command.Args = append(e.command.Args, "--initial-advertise-peer-urls=http://"+addr, "--initial-cluster="+cluster)
}

// etcdEnv drops the ETCD_* variables: each sets a flag, for some other server.
func etcdEnv() []string {
	// Without this, version 3.4 refuses to start on arm64.
	return append(envWithout("ETCD_"), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
}

// Restart kills the server if it is running (SIGKILL), and starts it on the same ports in the same directory, which
// keeps what the server has acknowledged. Each lease starts again with its full time to live.
func (e *Etcd) Restart(ctx context.Context) error {
	return Restart(ctx, &e.Process, e.command, e.healthy)
}

// healthy asks etcd for its health: it has a leader and serves a linearizable read.
func (e *Etcd) healthy(ctx context.Context) error {
	_, err := e.ask(ctx, http.MethodGet, "/health", "")
	return err
}

// ask sends a request as a client of etcd, and returns the body of the answer.
func (e *Etcd) ask(ctx context.Context, method, path, body string) (answer []byte, err error) {
	url := e.scheme + "://" + e.Addr + path
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := e.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, 4096))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, response.Status, bytes.TrimSpace(answer))
	}
	return answer, err
}

// Stop ends the server and removes its directory.
func (e *Etcd) Stop(ctx context.Context) error {
	if e.Process == nil {
		return e.dir.Remove()
	}
	return errors.Join(e.Process.Stop(ctx), e.dir.Remove())
}

var etcdVersion = regexp.MustCompile(`(?m)^etcd Version: ([0-9.]+)`)

func findEtcd(ctx context.Context) (path, version string, err error) {
	path, found := find("etcd")
	if !found {
		return "", "", errorNotInstalled("etcd", "etcd-server")
	}
	ask := exec.CommandContext(ctx, path, "--version")
	ask.Env = etcdEnv()
	answer, err := ask.Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	match := etcdVersion.FindStringSubmatch(string(answer))
	if match == nil {
		answer = bytes.TrimSpace(answer)
		return "", "", fmt.Errorf("%s is not an etcd server: its version is %q", path, answer)
	}
	return path, "etcd " + match[1], nil
}

func knowsUnsafeNoFsync(ctx context.Context, path string) bool {
	ask := exec.CommandContext(ctx, path, "--help")
	ask.Env = etcdEnv()
	help, err := ask.CombinedOutput()
	return err == nil && bytes.Contains(help, []byte("unsafe-no-fsync"))
}
