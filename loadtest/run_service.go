package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/verify"
)

// Defaults of a run of a user's service, which may open a connection or start an interpreter for each request.
const (
	serviceUsers    = 32
	serviceRequests = 2000
)

// withoutService are flags that have no meaning for a service of the user's.
var withoutService = []string{
	"strategies", "store", "hold", "restock", "target", "single", "admin", "redlock", "key-prefix", "name",
	"redis-replica", "redis-cluster", "etcd-members", "stock-binary", "tidb", "faults", "explore",
}

// readService reads the description of the user's service.
func (f *runFlags) readService(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	if f.serviceFile == "" {
		return nil
	}
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
	case running && flags.Changed("replicas"):
		return errors.New("--replicas and url exclude each other: url lists the replicas")
	case !running && (f.attach.mysqlDSN != "" || len(f.attach.redis) > 0):
		return errors.New("--mysql-dsn and --redis are for a service with url: one with command is started on servers of " +
			"the lab's own")
	case f.sweep.Axis == history.AxisReplicas || f.sweep.Axis == history.AxisHold:
		return fmt.Errorf("--sweep %s cannot be used with --service", f.sweep.Axis)
	case f.service.OneUnit() && f.request.counts != "1":
		return errors.New("--counts needs {count} in the request of your service")
	case running:
		f.replicas = len(f.service.URL)
	}
	f.faults, f.explore = false, false
	f.rounds = cmp.Or(f.rounds, fixedRounds)
	if !flags.Changed("users") {
		f.users = serviceUsers
	}
	if !flags.Changed("requests") {
		f.requests = serviceRequests
	}
	return nil
}

// writeVerdict says what was found about the user's service, in one line.
func (f *runFlags) writeVerdict(stdout io.Writer, r *report.Report) {
	verdict, why := verify.Correct, ""
	for _, row := range r.Rows {
		if row.Result == verify.Wrong && verdict != verify.Wrong || row.Result != verify.Correct && why == "" {
			verdict = row.Result
			why = ": " + strings.Join(row.Evidence[:min(1, len(row.Evidence))], "")
		}
	}
	if r.Err() != nil && verdict == verify.Correct {
		verdict = verify.Inconclusive
	}
	fmt.Fprintf(stdout, "\n%s is %s%s\n", f.service.Name, strings.ToUpper(string(verdict)), why)
}
