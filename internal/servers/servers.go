// Package servers starts private MySQL or MariaDB, PostgreSQL, Redis, nginx, etcd and ZooKeeper servers as child
// processes, for the tests and the lab.
//
// A server listens on a loopback port of its own and keeps everything in a temporary directory of its own. On Linux it
// ends with the process that started it, even if that process is killed. The servers of the system are neither read nor
// changed.
package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// FreePort returns a loopback TCP port that nothing listens on.
//
// It makes a connection to the port and closes the server's side first, which leaves the port in TIME_WAIT. In that
// state the kernel does not choose the port for anyone, but a server may still ask for it (SO_REUSEADDR).
func FreePort() (int, error) {
	port, err := freePort()
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, server.Close()
}

// sbin lists directories with servers that are often missing from a user's PATH.
var sbin = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec", "/opt/homebrew/bin", "/opt/homebrew/sbin"}

// find returns the path of the first named program that is installed.
func find(names ...string) (path string, found bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
		for _, dir := range sbin {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}

// ErrNotInstalled is wrapped by the error of a Start function whose program is missing. That error names the package to
// install.
var ErrNotInstalled = errors.New("is not installed")

func errorNotInstalled(programs, packages string) error {
	return fmt.Errorf("%s %w: run \"make servers\" or \"apt-get install %s\"", programs, ErrNotInstalled, packages)
}

// envWithout returns the environment of this process without the entries that start with one of the prefixes.
func envWithout(prefixes ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}

// isRoot reports whether this process runs as root, which some servers refuse unless told otherwise.
func isRoot() bool { return os.Geteuid() == 0 }
