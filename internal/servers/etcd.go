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
)

// EtcdOptions configures StartEtcd. The zero value is as durable as etcd ships: every write is flushed.
type EtcdOptions struct {
	Name    string   // for messages; "etcd" where empty
	Relaxed bool     // flushes nothing, where this version can (3.5 and later). For tests, never for measurements.
	Args    []string // more arguments, such as "--heartbeat-interval=50"
}

// Etcd is a private cluster of one etcd server. It has no password: it listens on loopback only.
type Etcd struct {
	Addr    string // host:port for clients
	Version string // "etcd 3.4.23"
	*Process

	command Command
	dir     *Dir
}

// StartEtcd starts an etcd server and waits until it has elected itself and answers.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	if o.Name == "" {
		o.Name = "etcd"
	}
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
	if o.Relaxed && knowsUnsafeNoFsync(ctx, path) {
		o.Args = append([]string{"--unsafe-no-fsync"}, o.Args...)
	}
	dir, err := NewDir("etcd")
	if err != nil {
		return nil, err
	}
	e := &Etcd{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(client)), Version: version, dir: dir}
	e.command = Command{
		Name: o.Name,
		Path: path,
		Args: append(etcdArgs(dir.File("data"), e.Addr, net.JoinHostPort("127.0.0.1", strconv.Itoa(peer))), o.Args...),
		Env:  etcdEnv(),
		Log:  dir.File("etcd.log"),
	}
	if err := e.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return e, nil
}

func etcdArgs(data, client, peer string) []string {
	client, peer = "http://"+client, "http://"+peer
	return []string{
		"--name=stock", "--data-dir=" + data,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=stock=" + peer,
	}
}

// etcdEnv has none of the ETCD_* variables, which are flags by another name and meant for another server.
func etcdEnv() []string {
	// Version 3.4 refuses to start on arm64 unless it is told so.
	return append(envWithout("ETCD_"), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
}

// Restart kills the server if it runs (SIGKILL), and starts it on the same ports and the same directory: what it has
// acknowledged is kept. Its leases start anew, each with its whole time to live.
func (e *Etcd) Restart(ctx context.Context) error {
	return restart(ctx, &e.Process, e.command, e.healthy)
}

// healthy asks for what etcd calls health: there is a leader, and a linearizable read passes.
func (e *Etcd) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Addr+"/health", nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("/health answers %s: %s", response.Status, bytes.TrimSpace(body))
	}
	return err
}

// Stop ends the server and removes its directory.
func (e *Etcd) Stop(ctx context.Context) error {
	return errors.Join(e.Process.Stop(ctx), e.dir.Remove())
}

var etcdVersion = regexp.MustCompile(`(?m)^etcd Version: ([0-9.]+)`)

func findEtcd(ctx context.Context) (path, version string, err error) {
	path, found := find("etcd")
	if !found {
		return "", "", notInstalled("etcd", "etcd-server")
	}
	ask := exec.CommandContext(ctx, path, "--version")
	ask.Env = etcdEnv()
	answer, err := ask.Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	match := etcdVersion.FindStringSubmatch(string(answer))
	if match == nil {
		return "", "", fmt.Errorf("%s is no etcd server: its version is %q", path, strings.TrimSpace(string(answer)))
	}
	return path, "etcd " + match[1], nil
}

func knowsUnsafeNoFsync(ctx context.Context, path string) bool {
	ask := exec.CommandContext(ctx, path, "--help")
	ask.Env = etcdEnv()
	help, err := ask.CombinedOutput()
	return err == nil && bytes.Contains(help, []byte("unsafe-no-fsync"))
}
