package servers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// NginxOptions configures StartNginx.
type NginxOptions struct {
	HTTP  string   // upstreams and servers, in the syntax of nginx
	Ready []string // URLs that nginx answers, with any status, when it is ready
}

// Nginx is a private nginx.
type Nginx struct {
	Version string // "nginx 1.22.1"
	Conf    string // path of its configuration file
	*Process

	command Command
	ready   []string
	dir     *Dir
}

// StartNginx starts nginx and waits until it answers.
func StartNginx(ctx context.Context, o NginxOptions) (*Nginx, error) {
	path, version, err := findNginx(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("nginx")
	if err != nil {
		return nil, err
	}
	n := &Nginx{Version: version, Conf: dir.File("nginx.conf"), ready: o.Ready, dir: dir}
	n.command = Command{
		Name: "nginx",
		Path: path,
		Args: []string{"-p", dir.Path, "-c", n.Conf, "-e", "stderr"},
		Log:  dir.File("nginx.log"),
		// SIGKILL would leave the workers behind, and they keep the port.
		Death: syscall.SIGTERM,
	}
	if err := os.WriteFile(n.Conf, []byte(nginxConf(dir, o.HTTP)), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write the configuration of nginx: %w", err), dir.Remove())
	}
	if err := n.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return n, nil
}

// nginxConf returns a configuration with which nginx writes to its own directory only.
func nginxConf(dir *Dir, http string) string {
	var conf strings.Builder
	if isRoot() {
		// Otherwise the workers would run as another user, who may not enter the directory.
		conf.WriteString("user root;\n")
	}
	connections := nginxConnections()
	fmt.Fprintf(&conf, "daemon off;\nworker_processes auto;\nworker_rlimit_nofile %d;\n", connections)
	fmt.Fprintf(&conf, "pid %s;\nerror_log stderr warn;\n", dir.File("nginx.pid"))
	fmt.Fprintf(&conf, "events {\n\tworker_connections %d;\n}\n", connections)
	conf.WriteString("http {\n\taccess_log off;\n")
	for _, temp := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&conf, "\t%s_temp_path %s;\n", temp, dir.File(temp))
	}
	fmt.Fprintf(&conf, "\n%s}\n", http)
	return conf.String()
}

// nginxConnections returns how many connections a worker may have. Each user takes two, one on each side, and one
// worker may serve all users. nginx allocates the memory at its start, less than half a KiB per connection. Each
// connection is an open file, whose hard limit only root may raise.
func nginxConnections() uint64 {
	const wanted = 16384
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return wanted
	}
	return min(wanted, files.Max)
}

// Restart kills nginx and its workers if it is running (SIGKILL), and starts it again.
func (n *Nginx) Restart(ctx context.Context) error {
	return Restart(ctx, &n.Process, n.command, func(ctx context.Context) error {
		for _, url := range n.ready {
			if err := ProbeHTTP(ctx, url); err != nil {
				return err
			}
		}
		return nil
	})
}

// ProbeHTTP returns an error unless a web server answers a GET with any status.
func ProbeHTTP(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// Stop ends nginx and removes its directory.
func (n *Nginx) Stop(ctx context.Context) error {
	return errors.Join(n.Process.Stop(ctx), n.dir.Remove())
}

func findNginx(ctx context.Context) (path, version string, err error) {
	path, found := find("nginx")
	if !found {
		return "", "", errorNotInstalled("nginx", "nginx")
	}
	answer, err := exec.CommandContext(ctx, path, "-v").CombinedOutput() // "nginx version: nginx/1.22.1 (Ubuntu)"
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	_, version, _ = strings.Cut(string(answer), "/")
	version, _, _ = strings.Cut(strings.TrimSpace(version), " ")
	return path, filepath.Base(path) + " " + version, nil
}
