package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
)

// Defaults of a full run, and of a quick one.
const (
	fullRequests, quickRequests = 6000, 600
	fullRounds, quickRounds     = 3, 1
	fullWarmUp, quickWarmUp     = 400 * time.Millisecond, 150 * time.Millisecond
)

const (
	maxRate  = 1_000_000 // more than one process can send, requests per second
	maxUnits = 1_000_000 // the largest count that the service accepts in a request

	requestTimeout = 20 * time.Second // longer than the service's own
	maxGoods       = 1_000_000        // keeps the table of the items' probabilities small
)

type runFlags struct {
	load.Config

	attach attachFlags
	local  localFlags

	serviceFile string
	service     *service.Description // of the user's; nil: strategies are run

	strategies []string
	store      string
	sweepText  string
	clusters   clusterFlags
	quick      bool
	faults     bool
	explore    bool
	contract   bool
	// faultsLeftOut is why faults is not set, if that is only because of the user's servers.
	faultsLeftOut string

	options []string // see givenOptions
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	registerService(flags, &f.serviceFile)
	flags.StringSliceVar(&f.strategies, "strategies", nil,
		"names, separated by commas (default: every strategy that can run here)")
	flags.IntVar(&f.Users, "users", 100, "concurrent users; with --rate, the most requests in flight")
	flags.IntVar(&f.Requests, "requests", fullRequests,
		"requests of each run (default: 6000, fewer of a slow strategy)")
	flags.DurationVar(&f.Duration, "duration", 0, "time of each run, instead of --requests")
	flags.Float64Var(&f.Rate, "rate", 0, "open loop: requests per second, however slow the service is")
	flags.IntVar(&f.Rounds, "rounds", fullRounds, "how often everything is run")
	flags.Int64Var(&f.Stock, "stock", 0, "units of all items together, instead of the two workloads")
	flags.StringVar(&f.Workload, "workload", "", "run only this workload: plenty or flash-sale (default: both)")
	flags.Int64Var(&f.Restock, "restock", 0,
		"units to put back every 20 ms of a run, into each item in turn; a lock without a fence loses some")
	flags.BoolVar(&f.Keys, "keys", false, "send an Idempotency-Key with every request, to strategies that keep it")
	flags.IntVar(&f.Goods, "goods", 1, "number of different items, with IDs from 1")
	flags.Uint64Var(&f.Seed, "seed", 0, "seed of all randomness (default: a random one)")
	flags.DurationVar(&f.Hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.StringVar(&f.store, "store", "", "mysql, redis, slots or units (default: the strategy's own)")
	flags.IntVar(&f.Replicas, "replicas", 2,
		fmt.Sprintf("replicas of the service: 1 to %d; with --target: how many it has", load.MaxReplicas))
	f.clusters.register(flags)
	flags.StringVar(&f.sweepText, "sweep", "",
		"vary users, hold, goods or replicas, such as users=1,8,32,128, to see how the cost grows")
	flags.BoolVar(&f.quick, "quick", false, "a smoke test: one round of at most 600 requests, in two and a half minutes")
	flags.BoolVar(&f.faults, "play-faults", true,
		"after the load, play the fault scenarios about which strategies make claims, and execute every interleaving of "+
			"two requests, as explore --quick does; never with --quick, --target, or a load other than the standard one")
	flags.StringVar(&f.Dir, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.local.registerTiDB(flags)
	f.attach.register(flags)
}

// check returns an error for flags that cannot work, before any server is started.
func (f *runFlags) check(flags *pflag.FlagSet) error {
	if err := f.checkLoad(flags); err != nil {
		return err
	}
	switch {
	case flags.Changed("strategies") && len(f.strategies) == 0:
		return errors.New("--strategies is empty: leave it out for every strategy, or name some")
	case f.Rounds < 1 || f.Rounds > load.MaxRounds:
		return fmt.Errorf("--rounds %d: must be a number from 1 to %d", f.Rounds, load.MaxRounds)
	case f.Restock < 0 || f.Restock > maxUnits:
		return fmt.Errorf("--restock %d: must be a number of units, at most %d", f.Restock, maxUnits)
	case f.attach.target == "":
		if err := checkReplicas(f.Replicas); err != nil {
			return err
		}
	case f.Replicas < 1:
		return fmt.Errorf("--replicas %d: must be at least 1", f.Replicas)
	}
	switch {
	case f.store != "" && !slices.Contains(oracle.Stores, f.store):
		return fmt.Errorf("--store %q: must be one of %s", f.store, strings.Join(oracle.Stores, ", "))
	case f.Hold < 0 || f.Hold > load.MaxHold || f.Hold%time.Millisecond != 0:
		return fmt.Errorf("--hold %v: must be whole milliseconds, at most %v", f.Hold, load.MaxHold)
	case f.Goods < 1 || f.Goods > maxGoods:
		return fmt.Errorf("--goods %d: must be a number from 1 to %d", f.Goods, maxGoods)
	}
	return cmp.Or(f.clusters.check(), f.checkStock(flags), f.parseSweep(flags), f.checkServers())
}

// checkStock returns an error for flags of the stock that cannot work.
func (f *runFlags) checkStock(flags *pflag.FlagSet) error {
	switch {
	case f.Stock < 0 || flags.Changed("stock") && f.Stock == 0:
		return fmt.Errorf("--stock %d: must be at least 1", f.Stock)
	case f.Workload != "" && f.Workload != load.Plenty && f.Workload != load.FlashSale:
		return fmt.Errorf("--workload %q: must be plenty or flash-sale", f.Workload)
	case f.Workload != "" && f.Stock > 0:
		return errors.New("--workload and --stock exclude each other: with --stock, there are no other workloads")
	}
	return nil
}

// checkLoad returns an error for flags of the load that cannot work.
func (f *runFlags) checkLoad(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("requests") && flags.Changed("duration"):
		return errors.New("--requests and --duration exclude each other")
	case f.Requests < 1:
		return fmt.Errorf("--requests %d: must be at least 1", f.Requests)
	case f.Duration < 0 || flags.Changed("duration") && f.Duration == 0:
		return fmt.Errorf("--duration %v: must be positive", f.Duration)
	case f.Users < 1:
		return fmt.Errorf("--users %d: must be at least 1", f.Users)
	case f.Users > load.MaxUsers:
		return fmt.Errorf("--users %d: one process can simulate at most %d", f.Users, load.MaxUsers)
	case !(f.Rate >= 0 && f.Rate <= maxRate): // also true for NaN
		return fmt.Errorf("--rate %g: must be requests per second, at most %d; 0 is a closed loop", f.Rate, int(maxRate))
	}
	return nil
}

// parseSweep reads --sweep. A sweep over replicas sets f.Replicas to its last value.
func (f *runFlags) parseSweep(flags *pflag.FlagSet) (err error) {
	if f.sweepText == "" {
		return nil
	}
	if f.Sweep, err = load.ParseSweep(f.sweepText); err != nil {
		return fmt.Errorf("--sweep %s: %w", f.sweepText, err)
	}
	switch axis := f.Sweep.Axis; {
	case flags.Changed(axis):
		return fmt.Errorf("--%s and --sweep %s exclude each other", axis, axis)
	case axis == history.AxisUsers && f.Rate > 0:
		return errors.New("--sweep users needs a closed loop: with --rate, more users do not send more requests")
	case axis == history.AxisReplicas && f.attach.target != "":
		return errors.New("--sweep replicas and --target exclude each other: the lab starts the replicas")
	case axis == history.AxisReplicas:
		f.Replicas = int(f.Sweep.Values[len(f.Sweep.Values)-1])
	}
	return nil
}

// checkServers returns an error if the flags about the lab's servers and the user's contradict each other.
func (f *runFlags) checkServers() error {
	a := &f.attach
	if f.serviceFile != "" {
		return checkServers("redis", a.redis)
	}
	if a.target != "" {
		return f.checkTarget()
	}
	if a.given() {
		return errors.New("--single, --admin and --key-prefix need --target: without it, the lab starts the service")
	}
	return a.checkOwn(f.local.tidb, f.clusters.redis)
}

// checkTarget returns an error for flags that cannot work with --target.
func (f *runFlags) checkTarget() error {
	switch {
	case f.attach.admin == "":
		return errors.New("--target needs --admin: the lab sets the stock through the admin listener")
	case f.clusters.given() || f.local.tidb != "":
		return errors.New("--redis-cluster, --etcd-members and --tidb are useless with --target: the lab starts no servers")
	case f.local.stockBinary != "":
		return errors.New("--stock-binary is useless with --target: the lab starts no replicas")
	}
	return checkServers("redis", f.attach.redis)
}

// setDefaults sets the defaults that depend on other flags, and a random seed.
func (f *runFlags) setDefaults(flags *pflag.FlagSet) {
	f.WarmUp, f.Timeout = fullWarmUp, requestTimeout
	f.Skew, f.MinCount, f.MaxCount = traffic.Uniform, 1, 1
	f.Brief = !flags.Changed("requests") && f.Duration == 0
	if f.quick {
		f.setQuick(flags)
	}
	if f.Duration > 0 {
		f.Requests = 0
	}
	// In a Cluster, each item has its own keys. A service with --target is not the lab's, so no items are added to it.
	f.contract = f.Standard() && f.Hold == 0 && f.attach.target == "" && !f.clusters.redis &&
		(len(f.attach.redis) == 0 || f.service != nil)
	standard := f.Standard() && f.Hold == 0 && !f.quick && f.attach.target == ""
	f.explore = f.faults && standard && f.service == nil && f.attach.mysqlDSN == "" && len(f.attach.redis) == 0
	f.faults = f.faults && standard && f.service == nil && f.Replicas >= 2
	if f.faults {
		f.faultsLeftOut = f.attach.noFaults()
		f.faults = f.faultsLeftOut == ""
	}
	f.Seed = cmp.Or(f.Seed, newSeed())
}

func (f *runFlags) setQuick(flags *pflag.FlagSet) {
	f.WarmUp = quickWarmUp
	if !flags.Changed("requests") {
		f.Requests = quickRequests
	}
	if !flags.Changed("rounds") {
		f.Rounds = quickRounds
	}
}

// givenOptions returns the flags that were given, on the command line or in the environment.
func givenOptions(flags *pflag.FlagSet) []string {
	options := []string{"run"}
	flags.Visit(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		options = append(options, "--"+flag.Name+"="+value)
	})
	return options
}
