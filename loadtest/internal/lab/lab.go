// Package lab is what the commands of the lab and its console share: a service under test, the directory of what is
// measured, and a run from its first request to its report.
package lab

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

	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
)

// StopTime is how long the servers may take to stop before they are killed.
const StopTime = 10 * time.Second

// Lab is a service under test and what is known about it.
type Lab struct {
	Target   load.Target
	Topology *topology.Topology // nil if the service was started elsewhere

	// Warnings say what the claims rely on and the servers do not have.
	Warnings []string

	servers    []report.Server
	notes      []string // for the report
	sharedHost bool
}

// Place says where a service is that was started elsewhere. Empty fields are unknown.
type Place struct {
	URL      string         // of the service
	Fewer    map[int]string // URLs that reach only the first replicas, by their number
	Admin    string         // URL of an admin listener
	MySQLDSN string         // of the service's database
	Redis    []string       // host:port
	Redlock  []string       // host:port of the independent masters

	KeyPrefix string // of everything that the service keeps in Redis

	oracle.Account // how to read the stock in MySQL and Redis
}

// Start starts the servers, the replicas and nginx.
func Start(ctx context.Context, o topology.Options) (*Lab, error) {
	o.MaxHold = load.MaxHold
	t, err := topology.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	l, err := Attach(ctx, Place{
		URL:      t.URL,
		Fewer:    t.Fewer,
		Admin:    t.Replicas[0].AdminURL,
		MySQLDSN: t.MySQLDSN,
		Redis:    t.Redis,
		Redlock:  t.Redlock,

		Account: t.Account, KeyPrefix: t.KeyPrefix,
	})
	if err != nil {
		return nil, errors.Join(err, stopTopology(t))
	}
	l.Topology, l.Target.CPU = t, t.CPU
	l.notes = append(l.notes, t.Notes()...)
	l.Warnings = append(l.Warnings, t.Warnings()...)
	for _, version := range []string{t.Environment.Nginx, t.Environment.Etcd, t.Environment.ZooKeeper} {
		if name, number, ok := strings.Cut(version, " "); ok {
			l.servers = append(l.servers, report.Server{Name: name, Version: number})
		}
	}
	return l, nil
}

// stopTopology takes no context: it also runs after the command was interrupted.
func stopTopology(t *topology.Topology) error {
	ctx, cancel := context.WithTimeout(context.Background(), StopTime)
	defer cancel()
	return t.Stop(ctx)
}

// Attach connects to a service that is already running.
func Attach(ctx context.Context, at Place) (*Lab, error) {
	l := &Lab{Target: load.Target{
		Service: load.Service{
			URL:   strings.TrimSuffix(at.URL, "/"),
			Admin: strings.TrimSuffix(at.Admin, "/"),
			Client: &http.Client{
				Timeout:   10 * time.Second,
				Transport: &http.Transport{MaxIdleConnsPerHost: load.MaxConcurrent, IdleConnTimeout: 5 * time.Second},
			},
		},
		Fewer: at.Fewer,
	}}
	servers, err := l.connect(ctx, at)
	for _, server := range servers {
		l.Warnings = append(l.Warnings, durability(server)...)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.describe(ctx, at)
	return l, nil
}

// connect opens the stores, and collects what the report says about their servers.
func (l *Lab) connect(ctx context.Context, at Place) (servers []oracle.Server, err error) {
	if at.MySQLDSN != "" || len(at.Redis) > 0 {
		l.Target.Oracle, err = oracle.Open(ctx, oracle.Config{
			MySQLDSN: at.MySQLDSN, Redis: at.Redis, Redlock: at.Redlock, Account: at.Account, KeyPrefix: at.KeyPrefix,
		})
		if err != nil {
			return nil, err
		}
	}
	l.sharedHost = sharesHost(at.URL)
	servers, err = l.Target.Oracle.Servers(ctx)
	for _, server := range servers {
		l.servers = append(l.servers, report.Server(server))
	}
	return servers, err
}

// describe collects what the report says about the service.
func (l *Lab) describe(ctx context.Context, at Place) {
	if at.MySQLDSN == "" {
		l.notes = append(l.notes, "stock in MySQL was read through the service, because --mysql-dsn was not given")
	}
	if len(at.Redis) == 0 {
		l.notes = append(l.notes, "stock in Redis was read through the service, because --redis was not given")
	}
	var version struct{ Version, Revision, Go string }
	body, err := l.Target.Service.Get(ctx, "/version")
	if err == nil {
		err = json.Unmarshal(body, &version)
	}
	if err != nil {
		l.notes = append(l.notes, fmt.Sprintf("the version of the service is unknown: %v", err))
		return
	}
	text := fmt.Sprintf("%s %.12s %s", version.Version, version.Revision, version.Go)
	l.servers = append(l.servers, report.Server{Name: "service", Version: strings.Join(strings.Fields(text), " ")})
}

// durability returns a warning for each setting on which claims rely and that a server does not have.
func durability(server oracle.Server) (warnings []string) {
	for _, wanted := range []struct{ setting, value, otherwise string }{
		{"innodb_flush_log_at_trx_commit", "1", "a crash of the server's host may lose sales that were confirmed"},
		{"sync_binlog", "1", "a crash of the server's host may lose sales that were confirmed"},
		{"transaction_isolation", "REPEATABLE-READ", "the claims are for REPEATABLE-READ, which MySQL has by default"},
		{"appendonly", "yes", "a restart of Redis loses stock, locks and the sales of redis-stream"},
	} {
		found, known := server.Settings[wanted.setting]
		logged := wanted.setting != "sync_binlog" || server.Settings["log_bin"] == "ON"
		if known && found != "" && found != wanted.value && logged {
			warnings = append(warnings, fmt.Sprintf("%s has %s=%s: %s", server.Name, wanted.setting, found, wanted.otherwise))
		}
	}
	return warnings
}

// Check returns an error if a server that the lab started has died.
func (l *Lab) Check() error {
	if l.Topology == nil {
		return nil
	}
	return l.Topology.Check()
}

// Died returns a channel that receives an error for each server that dies, until ctx ends; nil if the lab started none.
func (l *Lab) Died(ctx context.Context) <-chan error {
	if l.Topology == nil {
		return nil
	}
	return l.Topology.Died(ctx)
}

// Close disconnects from the service, and stops the servers that the lab started.
func (l *Lab) Close() error {
	if l.Target.Oracle != nil {
		l.Target.Oracle.Close()
	}
	if l.Target.Own != nil {
		l.Target.Own.Close()
	}
	if l.Topology == nil {
		return nil
	}
	return stopTopology(l.Topology)
}

// sharesHost reports whether the load generator and the service may run on the same host: its address is one of a
// private network, as those of containers are, or a name without a dot.
func sharesHost(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return true
	}
	host := parsed.Hostname()
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return !strings.Contains(host, ".")
}
