package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// stopTime is how long the servers may take to end before they are killed.
const stopTime = 10 * time.Second

// lab is a service under test and what is known of its surroundings.
type lab struct {
	target     scenario.Target
	servers    []report.Server
	notes      []string
	sharedHost bool
	check      func() error // says which server died, if any did
	close      func() error
}

// localFlags are for servers that the lab starts itself.
type localFlags struct {
	stockBinary string
}

func (f *localFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.stockBinary, "stock-binary", "", "program of the service (default: stock beside this one, else built from source)")
}

// attachFlags are for a service that runs elsewhere.
type attachFlags struct {
	target, single, admin string
	mysqlDSN              string
	redis, redlock        []string
	redisPassword         string // from the environment alone: other users of the host can read a command line
}

func (f *attachFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.target, "target", "", "URL of a service that runs already: nothing is started")
	flags.StringVar(&f.single, "single", "", "with --target: URL by which one replica alone is reached")
	flags.StringVar(&f.admin, "admin", "", "with --target: URL of a replica's admin listener, to set the stock")
	flags.StringVar(&f.mysqlDSN, "mysql-dsn", "", "with --target: user:password@tcp(host:port)/database, to read the stock directly")
	flags.StringSliceVar(&f.redis, "redis", nil, "with --target: host:port of Redis, to read the stock directly; password in LOADTEST_REDIS_PASSWORD")
	flags.StringSliceVar(&f.redlock, "redlock", nil, "with --target: host:port of Redlock's masters, to count their commands")
}

// startLab starts the servers, the replicas and nginx.
func (f *runFlags) startLab(ctx context.Context) (*lab, error) {
	if f.attach.admin != "" || f.attach.single != "" || f.attach.mysqlDSN != "" || len(f.attach.redis)+len(f.attach.redlock) > 0 {
		return nil, fmt.Errorf("--single, --admin, --mysql-dsn, --redis and --redlock need --target: without it, the lab starts its own servers")
	}
	t, err := topology.Start(ctx, topology.Options{Replicas: f.replicas, StockBinary: f.local.stockBinary})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		// The run may have been interrupted: stopping is not.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		return t.Stop(ctx)
	}
	admin := t.Replicas[0].AdminURL
	lab, err := attach(ctx, attachFlags{
		target: t.URL, single: t.SingleURL, admin: admin, mysqlDSN: t.MySQLDSN, redis: t.Redis, redlock: t.Redlock,
	})
	if err != nil {
		stop()
		return nil, err
	}
	lab.check = t.Check
	disconnect := lab.close
	lab.close = func() error {
		disconnect()
		return stop()
	}
	lab.servers = append(lab.servers, report.Server{Name: "nginx", Version: t.Environment.Nginx})
	return lab, nil
}

// attachLab uses a service that somebody else started.
func (f *runFlags) attachLab(ctx context.Context) (*lab, error) {
	if f.local.stockBinary != "" {
		return nil, fmt.Errorf("--stock-binary has no use with --target: nothing is started")
	}
	return attach(ctx, f.attach)
}

func attach(ctx context.Context, f attachFlags) (*lab, error) {
	l := &lab{check: func() error { return nil }, sharedHost: onThisHost(f.target)}
	l.target = scenario.Target{
		Service: scenario.Service{
			URL: strings.TrimSuffix(f.target, "/"), Admin: strings.TrimSuffix(f.admin, "/"),
			Client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		},
		Alone: strings.TrimSuffix(f.single, "/"),
	}
	l.close = func() error { return nil }
	if f.mysqlDSN != "" || len(f.redis) > 0 {
		o, err := oracle.Open(ctx, oracle.Config{
			MySQLDSN: f.mysqlDSN, Redis: f.redis, Redlock: f.redlock, RedisPassword: f.redisPassword,
		})
		if err != nil {
			return nil, err
		}
		l.target.Oracle, l.close = o, o.Close
	}
	servers, err := l.target.Oracle.Servers(ctx)
	if err != nil {
		l.close()
		return nil, err
	}
	for _, server := range servers {
		l.servers = append(l.servers, report.Server(server))
	}
	if f.mysqlDSN == "" {
		l.notes = append(l.notes, "the lab was not told where MySQL is: the service itself is the witness of the stock there (--mysql-dsn)")
	}
	if len(f.redis) == 0 {
		l.notes = append(l.notes, "the lab was not told where Redis is: the service itself is the witness of the stock there (--redis)")
	}
	if f.admin == "" {
		l.notes = append(l.notes, "the lab could not set the stock: each run sold a share of what was there (--admin)")
	}
	if version, err := serviceVersion(ctx, l.target); err != nil {
		l.notes = append(l.notes, fmt.Sprintf("the service does not tell its version: %v", err))
	} else {
		l.servers = append(l.servers, report.Server{Name: "service", Version: version})
	}
	return l, nil
}

// onThisHost says whether load and service take the processor from each other.
func onThisHost(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

func serviceVersion(ctx context.Context, target scenario.Target) (string, error) {
	body, err := target.Get(ctx, "/version")
	if err != nil {
		return "", err
	}
	var v struct{ Version, Revision, Go string }
	if err := json.Unmarshal(body, &v); err != nil {
		return "", err
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.12s %s", v.Version, v.Revision, v.Go)), nil
}
