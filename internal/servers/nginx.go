package servers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// NginxOptions configures StartNginx.
type NginxOptions struct {
	Main  string   // the main configuration; relative paths in it are below the private directory
	Sites string   // upstreams and servers, for the main configuration to include from conf.d
	Ready []string // URLs that nginx answers, with any status, when it is ready
}

// Nginx is a private nginx. Its Addr is empty: its sites say where it listens.
type Nginx struct {
	Server

	Conf string // path of its configuration file
}

var nginxProgram = program{
	names: []string{"nginx"}, called: "nginx", packages: "nginx",
	ask: []string{"-v"}, version: regexp.MustCompile(`nginx/([^ \n]+)`), // "nginx version: nginx/1.22.1 (Ubuntu)"
}

// StartNginx starts nginx and waits until it answers.
func StartNginx(ctx context.Context, o NginxOptions) (*Nginx, error) {
	path, version, err := nginxProgram.find(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("nginx")
	if err != nil {
		return nil, err
	}
	n := &Nginx{Server: Server{Version: "nginx " + version[1], dir: dir}, Conf: dir.File("nginx.conf")}
	n.ready = func(ctx context.Context) error {
		for _, url := range o.Ready {
			if err := ProbeHTTP(ctx, url); err != nil {
				return err
			}
		}
		return nil
	}
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
		return nil, errors.Join(err, n.Stop(ctx))
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
