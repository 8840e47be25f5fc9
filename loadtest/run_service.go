package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/service"
)

// Defaults of a run of a user's service, which may open a connection or start an interpreter for each request.
const (
	serviceUsers    = 32
	serviceRequests = 2000
)

// withoutService are flags that have no meaning for a service of the user's.
var withoutService = []string{
	"strategies", "store", "hold", "restock", "target", "single", "admin", "key-prefix", "redis-cluster",
	"etcd-members", "stock-binary", "tidb", "play-faults",
}

// readService reads the description of the user's service. Flags that the environment sets may be for other commands.
func (f *runFlags) readService(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	if f.serviceFile == "" {
		return nil
	}
	given := func(name string) bool { return flags.Changed(name) && getenv(variable(name)) == "" }
	for _, name := range withoutService {
		if flags.Changed(name) {
			return fmt.Errorf("--%s cannot be used with --service: it is about this repository's service", name)
		}
	}
	if f.service, err = service.Read(f.serviceFile, getenv); err != nil {
		return err
	}
	running := len(f.service.URL) > 0
	switch {
	case running && given("replicas"):
		return errors.New("--replicas and url exclude each other: url lists the replicas")
	case !running && (given("mysql-dsn") || given("redis")):
		return errors.New("--mysql-dsn and --redis need url in the service's file: a service with command is started on " +
			"servers of the lab's own")
	case f.Sweep.Axis == history.AxisReplicas || f.Sweep.Axis == history.AxisHold:
		return fmt.Errorf("--sweep %s cannot be used with --service", f.Sweep.Axis)
	case running:
		f.Replicas = len(f.service.URL)
	}
	if !flags.Changed("users") {
		f.Users = serviceUsers
	}
	if !flags.Changed("requests") {
		f.Requests = serviceRequests
	}
	return nil
}
