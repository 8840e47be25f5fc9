package servers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// RedisOptions configures StartRedis. The zero value keeps nothing on disk.
type RedisOptions struct {
	Name      string   // used in messages; "redis" if empty
	AOF       bool     // whether to write an append-only file, so that a restart keeps the data
	Fsync     string   // when to flush the append-only file: "everysec" (if empty), "always" or "no"
	Databases int      // number of logical databases; the default of Redis, 16, if 0
	Config    string   // content of a configuration file, which a Sentinel rewrites; no file if empty
	Args      []string // additional arguments, such as "--maxmemory", "10mb"
}

// Redis is a private Redis or Valkey server. It has no password, but listens on loopback only.
type Redis struct {
	Addr    string // host:port
	Version string // "Redis 7.0.15"
	*Process

	command Command
	dir     *Dir
}

// StartRedis starts a Redis server and waits until it answers.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.Name == "" {
		o.Name = "redis"
	}
	path, version, err := findRedis(ctx)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Version: version, dir: dir}
	r.command = Command{
		Name: o.Name,
		Path: path,
		// Debian's redis-tools has redis-check-rdb only: the same program, which is a server when it runs under this
		// name.
		Argv0: "redis-server",
		Args:  o.args(port, dir.Path),
		Log:   dir.File("redis.log"),
	}
	if o.Config != "" {
		conf := dir.File("redis.conf")
		if err := os.WriteFile(conf, []byte(o.Config), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("write the configuration of %s: %w", o.Name, err), dir.Remove())
		}
		r.command.Args = append([]string{conf}, r.command.Args...) // the file must be the first argument
	}
	if err := r.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return r, nil
}

func (o RedisOptions) args(port int, dir string) []string {
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--protected-mode", "yes",
		"--daemonize", "no", "--dir", dir, "--save", "",
	}
	if o.AOF {
		if o.Fsync == "" {
			o.Fsync = "everysec"
		}
		args = append(args, "--appendonly", "yes", "--appendfsync", o.Fsync)
	} else {
		args = append(args, "--appendonly", "no")
	}
	if o.Databases > 0 {
		args = append(args, "--databases", strconv.Itoa(o.Databases))
	}
	return append(args, o.Args...)
}

// Restart kills the server if it is running (SIGKILL), and starts it on the same port in the same directory. Without an
// append-only file, the data is lost.
func (r *Redis) Restart(ctx context.Context) error {
	return Restart(ctx, &r.Process, r.command, r.ping)
}

// ping does not use go-redis, which would retry at its own pace and write to stderr whenever it cannot connect.
func (r *Redis) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && reply != "+PONG\r\n" {
		err = fmt.Errorf("PING: %s", strings.TrimSpace(reply)) // LOADING while it reads its append-only file
	}
	return err
}

// Stop ends the server and removes its directory.
func (r *Redis) Stop(ctx context.Context) error {
	return errors.Join(r.Process.Stop(ctx), r.dir.Remove())
}

var redisVersion = regexp.MustCompile(`(?i)^(redis|valkey).* v=([0-9.]+)`)

func findRedis(ctx context.Context) (path, version string, err error) {
	path, found := find("redis-server", "valkey-server", "redis-check-rdb", "valkey-check-rdb")
	if !found {
		return "", "", errorNotInstalled("redis-server or valkey-server", "redis-tools")
	}
	ask := exec.CommandContext(ctx, path, "--version")
	ask.Args[0] = "redis-server"
	answer, err := ask.Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	match := redisVersion.FindStringSubmatch(string(answer))
	if match == nil {
		answer = bytes.TrimSpace(answer)
		return "", "", fmt.Errorf("%s is not a Redis server: its version is %q", path, answer)
	}
	return path, match[1] + " " + match[2], nil
}
