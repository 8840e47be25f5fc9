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

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// stopTime is how long the servers may take to stop before they are killed.
const stopTime = 10 * time.Second

// lab is a service under test and what is known about it.
type lab struct {
	target     scenario.Target
	servers    []report.Server
	revision   string   // of the source that the service was built from; empty if unknown
	notes      []string // for the report
	sharedHost bool

	topology *topology.Topology // nil if the service was started elsewhere
}

// startLab starts the servers, the replicas and nginx.
func startLab(ctx context.Context, o topology.Options) (*lab, error) {
	o.MaxHold = scenario.MaxHold
	t, err := topology.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	l, err := attach(ctx, attachFlags{
		target:   t.URL,
		single:   t.SingleURL,
		admin:    t.Replicas[0].AdminURL,
		mysqlDSN: t.MySQLDSN,
		redis:    t.Redis,
		redlock:  t.Redlock,
	})
	if err != nil {
		return nil, errors.Join(err, stopTopology(t))
	}
	l.topology = t
	for _, version := range []string{t.Environment.Nginx, t.Environment.Etcd, t.Environment.ZooKeeper} {
		if name, number, ok := strings.Cut(version, " "); ok {
			l.servers = append(l.servers, report.Server{Name: name, Version: number})
		}
	}
	return l, nil
}

// stopTopology takes no context: it also runs after the command was interrupted.
func stopTopology(t *topology.Topology) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return t.Stop(ctx)
}

// attach connects to a service that is already running.
func attach(ctx context.Context, f attachFlags) (*lab, error) {
	l := &lab{target: scenario.Target{
		Service: scenario.Service{
			URL:   strings.TrimSuffix(f.target, "/"),
			Admin: strings.TrimSuffix(f.admin, "/"),
			Client: &http.Client{
				Timeout:   10 * time.Second,
				Transport: &http.Transport{MaxIdleConnsPerHost: scenario.MaxConcurrent, IdleConnTimeout: 5 * time.Second},
			},
		},
		Alone: strings.TrimSuffix(f.single, "/"),
	}}
	if f.mysqlDSN != "" || len(f.redis) > 0 {
		o, err := oracle.Open(ctx, oracle.Config{
			MySQLDSN: f.mysqlDSN, Redis: f.redis, Redlock: f.redlock, RedisPassword: f.redisPassword,
		})
		if err != nil {
			return nil, err
		}
		l.target.Oracle = o
	}
	if err := l.describe(ctx, f); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// describe collects what the report says about the service and its servers.
func (l *lab) describe(ctx context.Context, f attachFlags) error {
	var note string
	if l.sharedHost, note = sharesHost(ctx, f.target); note != "" {
		l.notes = append(l.notes, note)
	}
	servers, err := l.target.Oracle.Servers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		l.servers = append(l.servers, report.Server(server))
	}
	if f.mysqlDSN == "" {
		l.notes = append(l.notes, "stock in MySQL was read through the service, because --mysql-dsn was not given")
	}
	if len(f.redis) == 0 {
		l.notes = append(l.notes, "stock in Redis was read through the service, because --redis was not given")
	}
	if f.admin == "" {
		l.notes = append(l.notes, "the lab could not set the stock, because --admin was not given: "+
			"each run sold a share of the stock that it found")
	}
	version, err := serviceVersion(ctx, l.target.Service)
	if err != nil {
		l.notes = append(l.notes, fmt.Sprintf("the version of the service is unknown: %v", err))
		return nil
	}
	l.revision = version.Revision
	text := fmt.Sprintf("%s %.12s %s", version.Version, version.Revision, version.Go)
	l.servers = append(l.servers, report.Server{Name: "service", Version: strings.Join(strings.Fields(text), " ")})
	return nil
}

// check returns an error if a server that the lab started has died.
func (l *lab) check() error {
	if l.topology == nil {
		return nil
	}
	return l.topology.Check()
}

// died returns a channel that receives an error for each server that dies; nil if the lab started none.
func (l *lab) died() <-chan error {
	if l.topology == nil {
		return nil
	}
	return l.topology.Died()
}

// close disconnects from the service, and stops the servers that the lab started.
func (l *lab) close() error {
	var errs []error
	if l.target.Oracle != nil {
		errs = append(errs, l.target.Oracle.Close())
	}
	if l.topology != nil {
		errs = append(errs, stopTopology(l.topology))
	}
	return errors.Join(errs...)
}

// sharesHost reports whether the load generator and the service run, or may run, on the same host. The note says why it
// is not certain.
func sharesHost(ctx context.Context, address string) (shares bool, note string) {
	parsed, err := url.Parse(address)
	if err != nil {
		return true, ""
	}
	host := parsed.Hostname()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return true, fmt.Sprintf("the address of %s is unknown: load and service may share a host", host)
	}
	for _, ip := range ips {
		if ip.Unmap().IsLoopback() {
			return true, ""
		}
	}
	for _, ip := range ips {
		if ip.Unmap().IsPrivate() || ip.Unmap().IsLinkLocalUnicast() {
			return true, fmt.Sprintf("%s has a private address, as containers do: load and service may share a host", host)
		}
	}
	return false, ""
}

type version struct{ Version, Revision, Go string }

func serviceVersion(ctx context.Context, service scenario.Service) (v version, err error) {
	body, err := service.Get(ctx, "/version")
	if err != nil {
		return version{}, err
	}
	err = json.Unmarshal(body, &v)
	return v, err
}

// shortRevision returns what the report shows of a revision that the linker has set.
func shortRevision(stamped string) string {
	hash, changed := strings.CutSuffix(stamped, "+dirty")
	hash = hash[:min(len(hash), 12)]
	if changed {
		hash += "+changes"
	}
	return hash
}

// revisionNote returns a note for the report if the service may be built from other source than the lab.
func revisionNote(service, lab string) string {
	short := func(revision string) string {
		revision, _, _ = strings.Cut(revision, "+")
		return revision[:min(len(revision), 12)]
	}
	switch service, lab := short(service), short(lab); {
	case service == "" || service == "unknown":
		return "the service does not report the revision that it was built from: build it with make build, in a git checkout"
	case lab == "":
		return "the lab does not know its own revision: the service may be built from another one"
	case service != lab:
		return fmt.Sprintf("the service was built from revision %s, the lab from %s", service, lab)
	}
	return ""
}
