package servers

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
)

// Server is what all servers have in common.
type Server struct {
	Addr    string // host:port for clients, on loopback
	Version string // such as "Redis 7.0.15"
	*Process

	command Command
	ready   func(context.Context) error // whether it serves
	dir     *Dir
}

// newServer chooses a free port and a directory for a server that is not yet started.
func newServer(name string) (Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return Server{}, err
	}
	dir, err := NewDir(name)
	return Server{Addr: addr, dir: dir}, err
}

func freeAddr() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// port is that of Addr.
func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// Restart kills the server if it is running (SIGKILL), and starts it on the same ports in the same directory.
func (s *Server) Restart(ctx context.Context) error {
	return Restart(ctx, &s.Process, s.command, s.ready)
}

// Stop kills the server and removes its directory. It does not ask the server to end: a master of Redis would wait for
// its Redis replicas, and a leader of etcd hand over to another member, and the data is removed anyway.
func (s *Server) Stop(context.Context) error {
	if s.Process != nil {
		s.Kill()
	}
	return s.dir.Remove()
}

// program is a server as it is installed.
type program struct {
	names    []string // under which it may be installed; the first that is found is used
	called   string   // in messages
	packages string   // that have it, on Debian and Ubuntu

	ask     []string        // arguments with which it says its version
	argv0   string          // name to run it under; its path if empty
	env     func() []string // environment; that of this process if nil
	version *regexp.Regexp  // matches what it then says
}

// find returns the path of the program, and the submatches of its version.
func (p program) find(ctx context.Context) (path string, version []string, err error) {
	path, found := find(p.names...)
	if !found {
		return "", nil, errorNotInstalled(p.called, p.packages)
	}
	ask := exec.CommandContext(ctx, path, p.ask...)
	if p.argv0 != "" {
		ask.Args[0] = p.argv0
	}
	if p.env != nil {
		ask.Env = p.env()
	}
	answer, err := ask.CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if version = p.version.FindStringSubmatch(string(answer)); version == nil {
		return "", nil, fmt.Errorf("%s is not %s: its version is %q", path, p.called, answer)
	}
	return path, version, nil
}
