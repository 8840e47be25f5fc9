package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// NginxOptions configures StartNginx.
type NginxOptions struct {
	HTTP  string   // the upstreams and servers, in nginx's language
	Ready []string // URLs that nginx answers, by whatever status, once it is ready
}

// Nginx is a private nginx.
type Nginx struct {
	Version string // "nginx 1.22.1"
	Conf    string // path of its configuration
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
		// SIGKILL would leave the workers behind, and with them the port.
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

// nginxConf keeps everything that nginx writes in its own directory.
func nginxConf(dir *Dir, http string) string {
	var conf strings.Builder
	if isRoot() {
		// The workers would change to another user, who may not enter the directory.
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

// nginxConnections is how many connections one worker may have: two a user, one to each side, and all users may meet at
// one worker. nginx sets the memory for them aside at once, under half a KiB each. Every connection is a file, and only root
// may raise the hard limit.
func nginxConnections() uint64 {
	const wanted = 16384
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return wanted
	}
	return min(wanted, files.Max)
}

// Restart kills nginx with its workers if it runs (SIGKILL), and starts it again.
func (n *Nginx) Restart(ctx context.Context) error {
	return restart(ctx, &n.Process, n.command, func(ctx context.Context) error {
		for _, url := range n.ready {
			if err := answers(ctx, url); err != nil {
				return err
			}
		}
		return nil
	})
}

// answers says whether a web server answers a GET, by whatever status.
func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	io.Copy(io.Discard, response.Body)
	return response.Body.Close()
}

// Stop ends nginx and removes its directory.
func (n *Nginx) Stop(ctx context.Context) error {
	return errors.Join(n.Process.Stop(ctx), n.dir.Remove())
}

func findNginx(ctx context.Context) (path, version string, err error) {
	path, found := find("nginx")
	if !found {
		return "", "", notInstalled("nginx", "nginx")
	}
	answer, err := exec.CommandContext(ctx, path, "-v").CombinedOutput() // "nginx version: nginx/1.22.1 (Ubuntu)"
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	_, version, _ = strings.Cut(string(answer), "/")
	version, _, _ = strings.Cut(strings.TrimSpace(version), " ")
	return path, filepath.Base(path) + " " + version, nil
}
