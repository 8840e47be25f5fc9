// Package servers starts private MySQL or MariaDB, Redis, nginx, etcd and ZooKeeper servers as child processes, for the
// tests and the lab.
//
// A server listens on loopback, on a port of its own, keeps everything in a directory of its own, and ends with the
// process that started it, even if that one is killed. Nothing of the system's own servers is read or changed.
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
// A connection is made to it and closed from the server's side first: the port is then in TIME_WAIT, where the kernel
// hands it to nobody who asks for any port, while a server that asks for this one gets it (SO_REUSEADDR).
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

// sbin lists where packages put servers that an ordinary user's PATH does not name.
var sbin = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec", "/opt/homebrew/bin", "/opt/homebrew/sbin"}

// find returns the path of the first of the named programs that is installed.
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

// ErrNotInstalled is what the Start functions fail with where the program is missing. The whole error names the package.
var ErrNotInstalled = errors.New("is not installed")

func notInstalled(programs, packages string) error {
	return fmt.Errorf("%s %w: run \"make servers\" or \"apt-get install %s\"", programs, ErrNotInstalled, packages)
}

// envWithout is this process's environment without the entries that start with one of the prefixes.
func envWithout(prefixes ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}

// isRoot says whether servers need to be told that they may run as root.
func isRoot() bool { return os.Geteuid() == 0 }
