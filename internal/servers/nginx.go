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
	Main  string   // the main configuration; relative paths in it are below the private directory
	Sites string   // upstreams and servers, for the main configuration to include from conf.d
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
	global := "daemon off;"
	if isRoot() {
		// Otherwise the workers would run as another user, who may not enter the directory.
		global += " user root;"
	}
	n.command = Command{
		Name: "nginx",
		Path: path,
		Args: []string{"-p", dir.Path, "-c", n.Conf, "-e", "stderr", "-g", global},
		Log:  dir.File("nginx.log"),
		// SIGKILL would leave the workers behind, and they keep the port.
		Death: syscall.SIGTERM,
	}
	if err := n.configure(o); err != nil {
		return nil, errors.Join(fmt.Errorf("write the configuration of nginx: %w", err), dir.Remove())
	}
	if err := n.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return n, nil
}

func (n *Nginx) configure(o NginxOptions) error {
	sites := n.dir.File("conf.d")
	return errors.Join(
		os.WriteFile(n.Conf, []byte(o.Main), 0o600),
		os.Mkdir(sites, 0o700),
		os.WriteFile(filepath.Join(sites, "sites.conf"), []byte(o.Sites), 0o600),
	)
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
