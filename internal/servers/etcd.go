package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// EtcdOptions configures StartEtcd. The zero value is as durable as etcd is by default: every write is flushed.
type EtcdOptions struct {
	Name    string   // used in messages; "etcd" if empty
	Relaxed bool     // flushes nothing, from version 3.5 on. For tests, never for measurements.
	TLS     *TLS     // for clients, which must have a certificate, not between members; without TLS if nil
	Args    []string // additional arguments, such as "--heartbeat-interval=50"
}

// Etcd is a private etcd server: a cluster of its own, or a member of an EtcdCluster. It has no password, but listens
// on loopback only.
//
// A Restart keeps what the server has acknowledged, and each lease starts again with its full time to live.
type Etcd struct {
	Server

	peer   string // host:port for other members
	client *http.Client
	scheme string // of client URLs
}

var etcdProgram = program{
	names: []string{"etcd"}, called: "etcd", packages: "etcd-server",
	ask: []string{"--version"}, env: etcdEnv, version: regexp.MustCompile(`(?m)^etcd Version: ([0-9.]+)`),
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
	path, version, err := etcdProgram.find(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := freeAddr()
	if err != nil {
		return nil, err
	}
	server, err := newServer("etcd")
	if err != nil {
		return nil, err
	}
	e := &Etcd{Server: server, peer: peer, client: http.DefaultClient, scheme: "http"}
	e.Version, e.ready = "etcd "+version[1], e.healthy
	if o.TLS != nil {
		config, err := o.TLS.client()
		if err != nil {
			return nil, errors.Join(err, e.dir.Remove())
		}
		e.client, e.scheme = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, "https"
	}
	e.command = Command{
		Name: o.Name, Path: path, Args: e.args(o), Env: etcdProgram.env(), Log: e.dir.File("etcd.log"),
	}
	if o.Relaxed && knowsUnsafeNoFsync(ctx, path) {
		e.command.Args = append(e.command.Args, "--unsafe-no-fsync")
	}
	e.command.Args = append(e.command.Args, o.Args...)
	return e, nil
}

func (e *Etcd) args(o EtcdOptions) []string {
	args := []string{
		"--name=" + o.Name, "--data-dir=" + e.dir.File("data"),
		"--listen-client-urls=" + e.scheme + "://" + e.Addr, "--advertise-client-urls=" + e.scheme + "://" + e.Addr,
		"--listen-peer-urls=http://" + e.peer,
		// Without compaction the history would fill the space quota. The mode revision compacts only every five minutes.
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=1m",
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

func knowsUnsafeNoFsync(ctx context.Context, path string) bool {
	ask := exec.CommandContext(ctx, path, "--help")
	ask.Env = etcdProgram.env()
	help, err := ask.CombinedOutput()
	return err == nil && bytes.Contains(help, []byte("unsafe-no-fsync"))
}
