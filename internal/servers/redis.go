package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

// Redis is a private Redis or Valkey server. It has no password, but listens on loopback only. Without an append-only
// file, a Restart loses its data.
type Redis struct {
	Server

	TLSAddr string   // host:port for TLS; empty without
	clock   *library // sets its clock by seconds; see RedisOptions.Clock
}

var redisProgram = program{
	names:  []string{"redis-server", "valkey-server", "redis-check-rdb", "valkey-check-rdb"},
	called: "redis-server or valkey-server", packages: "redis-tools",
	// Debian's redis-tools has redis-check-rdb only: the same program, which is a server when it runs under this name.
	ask: []string{"--version"}, argv0: "redis-server",
	version: regexp.MustCompile(`(?im)^(redis|valkey).* v=([0-9.]+)`),
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
	path, version, err := redisProgram.find(ctx)
	if err != nil {
		return nil, err
	}
	server, err := newServer("redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{Server: server}
	r.Version, r.ready = version[1]+" "+version[2], r.ping
	r.command = Command{
		Name:  o.Name,
		Path:  path,
		Argv0: redisProgram.argv0,
		Args:  slices.Concat(o.args(r.port(), r.dir.File("data")), replicaOf),
		Env:   append(os.Environ(), o.Env...),
		Log:   r.dir.File("redis.log"),
	}
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.Stop(ctx))
	}
	return r, nil
}

// start starts the server for the first time.
func (r *Redis) start(ctx context.Context, o RedisOptions) (err error) {
	if err := os.Mkdir(r.dir.File("data"), 0o700); err != nil {
		return err
	}
	if o.TLS != nil {
		if r.TLSAddr, err = freeAddr(); err != nil {
			return err
		}
		r.command.Args = append(r.command.Args, o.TLS.redisArgs(r.TLSAddr)...)
	}
	r.command.Args = append(r.command.Args, o.Args...) // they override those of this package
	if o.Clock {
		if r.clock, err = prepareLibrary(ctx, r.dir, "clock", "STOCK_CLOCK"); err != nil {
			return err
		}
		r.command.Env = append(r.command.Env, r.clock.env...)
	}
	if o.Config != "" {
		conf := r.dir.File("redis.conf")
		if err := os.WriteFile(conf, []byte(o.Config), 0o600); err != nil {
			return err
		}
		r.command.Args = append([]string{conf}, r.command.Args...) // the file must be the first argument
	}
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

func (o RedisOptions) args(port, dir string) []string {
	args := []string{
		"--bind", "127.0.0.1", "--port", port, "--protected-mode", "yes",
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
