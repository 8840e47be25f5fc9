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
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// RedisOptions configures StartRedis. The zero value keeps nothing on disk.
type RedisOptions struct {
	Name      string   // used in messages; "redis" if empty
	AOF       bool     // whether to write an append-only file, so that a restart keeps the data
	Fsync     string   // when to flush the append-only file: "everysec" (if empty), "always" or "no"
	Databases int      // number of logical databases; the default of Redis, 16, if 0
	Config    string   // content of a configuration file, which a Sentinel rewrites; no file if empty
	ReplicaOf string   // host:port of the master, or of a proxy in front of it; not a Redis replica if empty
	TLS       *TLS     // a second port, for clients with a certificate; none if nil
	Args      []string // additional arguments, such as "--maxmemory", "10mb"
	Env       []string // additional environment, such as "LD_PRELOAD=/path/to/library.so"
	Clock     bool     // SetClock sets its wall clock, which needs Linux and a C compiler
}

// Redis is a private Redis or Valkey server. It has no password, but listens on loopback only.
type Redis struct {
	Addr    string // host:port
	TLSAddr string // host:port for TLS; empty without
	Version string // "Redis 7.0.15"
	*Process

	command Command
	dir     *Dir
	clock   *library // sets its clock by seconds; see RedisOptions.Clock
}

// StartRedis starts a Redis server and waits until it answers, and if it is a Redis replica, until it is in sync.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.Name == "" {
		o.Name = "redis"
	}
	replicaOf, err := o.replicaOf()
	if err != nil {
		return nil, err
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
	r := &Redis{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Version: version, dir: dir,
	}
	if o.TLS != nil {
		secure, err := FreePort()
		if err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
		r.TLSAddr = net.JoinHostPort("127.0.0.1", strconv.Itoa(secure))
		o.Args = slices.Concat(o.TLS.redisArgs(secure), o.Args)
	}
	data := dir.File("data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for the data of %s: %w", o.Name, err), dir.Remove())
	}
	r.command = Command{
		Name: o.Name,
		Path: path,
		// Debian's redis-tools has redis-check-rdb only: the same program, which is a server when it runs under this
		// name.
		Argv0: "redis-server",
		Args:  slices.Concat(o.args(port, data), replicaOf, o.Args),
		Env:   append(os.Environ(), o.Env...),
		Log:   dir.File("redis.log"),
	}
	if o.Clock {
		if r.clock, err = prepareLibrary(ctx, r.dir, "clock", "STOCK_CLOCK"); err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
		r.command.Env = append(r.command.Env, r.clock.env...)
	}
	if o.Config != "" {
		conf := dir.File("redis.conf")
		if err := os.WriteFile(conf, []byte(o.Config), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("write the configuration of %s: %w", o.Name, err), dir.Remove())
		}
		r.command.Args = append([]string{conf}, r.command.Args...) // the file must be the first argument
	}
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.Stop(ctx))
	}
	return r, nil
}

// start starts the server for the first time.
func (r *Redis) start(ctx context.Context, o RedisOptions) error {
	if err := r.Restart(ctx); err != nil {
		return err
	}
	if o.ReplicaOf == "" {
		return nil
	}
	return r.AwaitSync(ctx)
}

// StartRedisMasters starts n independent Redis servers with the same options. Their names end in their numbers, from 1.
func StartRedisMasters(ctx context.Context, n int, o RedisOptions) ([]*Redis, error) {
	if o.Name == "" {
		o.Name = "redis"
	}
	masters := make([]*Redis, n)
	for i := range masters {
		options := o
		options.Name = fmt.Sprintf("%s-%d", o.Name, i+1)
		var err error
		if masters[i], err = StartRedis(ctx, options); err != nil {
			return nil, errors.Join(err, stopRedis(ctx, masters[:i]...))
		}
	}
	return masters, nil
}

func (o RedisOptions) args(port int, dir string) []string {
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--protected-mode", "yes",
		"--daemonize", "no", "--dir", dir, "--save", "",
		"--repl-diskless-sync-delay", "0", // by default, a master lets its first Redis replica wait for 5 s
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
	return args
}

// replicaOf returns the arguments that name the master, if there is one.
func (o RedisOptions) replicaOf() ([]string, error) {
	if o.ReplicaOf == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(o.ReplicaOf)
	if err != nil {
		return nil, fmt.Errorf("the master of %s: %w", o.Name, err)
	}
	return []string{"--replicaof", host, port}, nil
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

// await calls ready with a client of the server until it returns nil. See Process.Await.
func (r *Redis) await(ctx context.Context, ready func(context.Context, *redis.Client) error) error {
	client := r.client()
	defer client.Close()
	return r.Await(ctx, func(ctx context.Context) error { return ready(ctx, client) })
}

// client returns a client that tries each command once.
func (r *Redis) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
}

// Stop kills the server and removes its directory. It does not ask the server to end: a master would wait for its Redis
// replicas, and the data is removed anyway.
func (r *Redis) Stop(context.Context) error {
	if r.Process != nil {
		r.Kill()
	}
	return r.dir.Remove()
}

// stopRedis stops those of the servers that were started.
func stopRedis(ctx context.Context, servers ...*Redis) error {
	var errs []error
	for _, r := range servers {
		if r != nil {
			errs = append(errs, r.Stop(ctx))
		}
	}
	return errors.Join(errs...)
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
