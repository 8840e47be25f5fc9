package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/tenant"
	"stock/loadtest/internal/topology"
)

// scriptLanes is the usual number of lanes for scripts, which are small.
const scriptLanes = 2

// areScripts reports whether arguments are files of scripts.
func areScripts(args []string, dash int) bool {
	return dash < 0 && len(args) > 0 && !slices.ContainsFunc(args, func(arg string) bool {
		return !strings.HasSuffix(arg, ".star")
	})
}

// checkScripts returns what is wrong with the flags of an exploration of scripts, and reads their files.
func (f *exploreFlags) checkScripts(flags *pflag.FlagSet, files []string, getenv func(string) string) error {
	for _, name := range []string{"strategies", "quick", "stock-binary", "service"} {
		if flags.Changed(name) {
			return fmt.Errorf("--%s cannot be used with a script", name)
		}
	}
	if err := f.servers.checkOwn("", false); err != nil {
		return err
	}
	switch {
	case f.replay != "" && len(files) > 1:
		return errors.New("--replay needs one script: that of the token")
	case f.servers.userServers(0).TLS():
		return errors.New("scripts are explored without TLS, because the proxies read what is sent")
	case len(f.servers.redis) > 1:
		return errors.New("scripts are explored on one Redis, and not on a Cluster")
	}
	if !flags.Changed("preemptions") {
		f.bounds.Preemptions = -1
	}
	if !flags.Changed("lanes") {
		f.lanes = scriptLanes
	}
	if f.servers.mysqlDSN != "" || len(f.servers.redis) > 0 || f.replay != "" {
		f.lanes = 1 // what waits in a server must belong to the schedule
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			var s *explore.Script
			s, err = explore.LoadScript(file, text, f.requests)
			f.scripts = append(f.scripts, s)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, f.servers.readAccount(getenv))...)
}

// runScripts explores scripts.
func (f *exploreFlags) runScripts(ctx context.Context, stdout, stderr io.Writer) (err error) {
	screen := newScreen(stderr)
	defer screen.clear()
	screen.starting()
	var at topology.Addresses
	release, err := f.rent(ctx, &at)
	defer func() { err = errors.Join(err, release()) }()
	if err != nil {
		return startError(ctx, err)
	}
	x, err := explore.StartScripts(ctx, f.lanes, at)
	if err != nil {
		return startError(ctx, err)
	}
	defer x.Close()
	if f.replay != "" {
		screen.clear()
		o, err := x.ReplayScript(ctx, f.scripts[0], f.replay)
		if err != nil {
			return err
		}
		return writeReplay(stdout, o)
	}
	return f.report(x, len(f.scripts), screen, stdout, func(i int) (trace.Result, error) {
		return x.ExploreScript(ctx, f.scripts[i], f.bounds)
	})
}

// rent takes a database and keys on servers of the user's. release returns them.
func (f *exploreFlags) rent(ctx context.Context, at *topology.Addresses) (release func() error, err error) {
	rented := []func(context.Context) error{}
	release = func() (err error) {
		for _, remove := range rented {
			err = errors.Join(err, remove(context.WithoutCancel(ctx)))
		}
		return err
	}
	name := tenant.NewName()
	if f.servers.mysqlDSN != "" {
		database, err := tenant.CreateDatabase(ctx, f.servers.mysqlDSN, f.servers.account, name)
		if err != nil {
			return release, err
		}
		rented, at.MySQLDSN = append(rented, database.Remove), database.DSN
	}
	if len(f.servers.redis) > 0 {
		at.KeyPrefix, at.Account = name+":", f.servers.account
		keys, err := tenant.CreateKeys(ctx, f.servers.redis, f.servers.account, at.KeyPrefix)
		if err != nil {
			return release, err
		}
		rented, at.Redis = append(rented, keys.Remove), f.servers.redis
	}
	return release, nil
}
