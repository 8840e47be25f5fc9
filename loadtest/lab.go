package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	revision   string // that the service was built from; empty where it does not tell
	notes      []string
	sharedHost bool
	check      func() error // says which server died, if any did
	died       <-chan error // gives each death; nil where the lab started no server
	close      func() error
}

// localFlags are for servers that the lab starts itself.
type localFlags struct {
	stockBinary string
}

func (f *localFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.stockBinary, "stock-binary", "", "program of the service (default: the stock that was built with this one, else built from source)")
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
		return nil, errors.Join(err, stop())
	}
	lab.check, lab.died = t.Check, t.Died()
	disconnect := lab.close
	lab.close = func() error { return errors.Join(disconnect(), stop()) }
	for _, version := range []string{t.Environment.Nginx, t.Environment.Etcd, t.Environment.ZooKeeper} {
		if name, number, ok := strings.Cut(version, " "); ok {
			lab.servers = append(lab.servers, report.Server{Name: name, Version: number})
		}
	}
	return lab, nil
}

// attachLab uses a service that somebody else started.
func (f *runFlags) attachLab(ctx context.Context) (*lab, error) {
	return attach(ctx, f.attach)
}

// checkTarget says which flags do not go together.
func (f *runFlags) checkTarget() error {
	a := f.attach
	switch {
	case a.target != "" && f.local.stockBinary != "":
		return errors.New("--stock-binary has no use with --target: nothing is started")
	case a.target != "" && a.admin == "" && f.restock > 0:
		return errors.New("--restock needs --admin: units are put back on the admin listener")
	case a.target != "" && a.admin == "" && f.stock > 0:
		return errors.New("--stock needs --admin: a target's stock is set on its admin listener")
	case a.target == "" && (a.admin != "" || a.single != "" || a.mysqlDSN != "" || len(a.redis)+len(a.redlock) > 0):
		return errors.New("--single, --admin, --mysql-dsn, --redis and --redlock need --target: without it, the lab starts its own servers")
	}
	return nil
}

func attach(ctx context.Context, f attachFlags) (*lab, error) {
	l := &lab{check: func() error { return nil }}
	var note string
	if l.sharedHost, note = sharesHost(ctx, f.target); note != "" {
		l.notes = append(l.notes, note)
	}
	l.target = scenario.Target{
		Service: scenario.Service{
			URL: strings.TrimSuffix(f.target, "/"), Admin: strings.TrimSuffix(f.admin, "/"),
			Client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: scenario.AtOnce, IdleConnTimeout: 5 * time.Second}},
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
		return nil, errors.Join(err, l.close())
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
	version, err := serviceVersion(ctx, l.target)
	if err != nil {
		l.notes = append(l.notes, fmt.Sprintf("the service does not tell its version: %v", err))
		return l, nil
	}
	l.revision = version.Revision
	l.servers = append(l.servers, report.Server{
		Name: "service", Version: strings.Join(strings.Fields(fmt.Sprintf("%s %.12s %s", version.Version, version.Revision, version.Go)), " "),
	})
	return l, nil
}

// sharesHost says whether load and service take, or may take, the processor from each other.
func sharesHost(ctx context.Context, address string) (shares bool, note string) {
	parsed, err := url.Parse(address)
	if err != nil {
		return true, ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", parsed.Hostname())
	if err != nil || len(ips) == 0 {
		return true, fmt.Sprintf("nobody knows the address of %s: load and service may share a host", parsed.Hostname())
	}
	for _, ip := range ips {
		if ip.Unmap().IsLoopback() {
			return true, ""
		}
	}
	for _, ip := range ips {
		if ip.Unmap().IsPrivate() || ip.Unmap().IsLinkLocalUnicast() {
			return true, fmt.Sprintf("%s has a private address, as a container has: load and service may share a host", parsed.Hostname())
		}
	}
	return false, ""
}

type version struct{ Version, Revision, Go string }

func serviceVersion(ctx context.Context, target scenario.Target) (v version, err error) {
	body, err := target.Get(ctx, "/version")
	if err != nil {
		return version{}, err
	}
	return v, json.Unmarshal(body, &v)
}

// stale warns where the service may not be what the lab's source says: one that was built earlier, and lies beside the lab.
func stale(service, lab string) string {
	short := func(revision string) string {
		revision, _, _ = strings.Cut(revision, "+")
		return revision[:min(len(revision), 12)]
	}
	switch service, lab := short(service), short(lab); {
	case service == "" || service == "unknown":
		return "the service does not tell the revision that it was built from: it may be an old one"
	case lab == "":
		return "the lab does not know the revision that it was built from: the service may be another one's"
	case service != lab:
		return fmt.Sprintf("the service was built from revision %s, and the lab from %s", service, lab)
	}
	return ""
}
