package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
)

// Defaults of a full run, and of a quick one.
const (
	fullRequests, quickRequests = 6000, 600
	fixedRounds, quickRounds    = 3, 1
	fullBudget, quickBudget     = 4*time.Minute + 30*time.Second, 40 * time.Second
	fullWarmUp, quickWarmUp     = 400 * time.Millisecond, 150 * time.Millisecond
)

const (
	maxRate  = 1_000_000 // more than one process can send, requests per second
	maxUnits = 1_000_000 // the largest count that the service accepts in a request
	maxGoods = 1_000_000 // keeps the table of the items' probabilities small
)

type runFlags struct {
	load.Config // whose Budget is also for the fault scenarios and the exploration

	attach attachFlags
	local  localFlags

	serviceFile string
	service     *service.Description // of the user's; nil: strategies are run

	strategies []string
	store      string
	counts     string
	sweepText  string
	copied     bool // by a Redis replica
	clusters   clusterFlags
	quick      bool
	faults     bool
	explore    bool
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
	flags.IntVar(&f.Requests, "requests", fullRequests, "requests of each run")
	flags.DurationVar(&f.Duration, "duration", 0, "time of each run, instead of --requests")
	flags.Float64Var(&f.Rate, "rate", 0, "open loop: requests per second, however slow the service is")
	flags.IntVar(&f.Rounds, "rounds", 0,
		"how often everything is run (default: each row at least three times, until its interval is narrow; "+
			"with --sweep, --rate, --duration, --restock or --budget 0: 3)")
	flags.Int64Var(&f.Stock, "stock", 0, "units of all items together, instead of the two workloads")
	flags.StringVar(&f.Workload, "workload", "", "run only this workload: plenty or flash-sale (default: both)")
	flags.Int64Var(&f.Restock, "restock", 0,
		"units to put back every 20 ms of a run, into each item in turn; a lock without a fence loses some")
	flags.BoolVar(&f.Keys, "keys", false, "send an Idempotency-Key with every request, to strategies that keep it")
	flags.IntVar(&f.Goods, "goods", 1, "number of different items, with IDs from 1")
	flags.StringVar(&f.Skew, "skew", traffic.Uniform, "how often each item is asked for: uniform or zipf")
	flags.StringVar(&f.counts, "counts", "1", "units per request: a number, or a range such as 1-3")
	flags.Uint64Var(&f.Seed, "seed", 0, "seed of all randomness (default: a random one)")
	flags.DurationVar(&f.Hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.StringVar(&f.store, "store", "", "mysql, redis, slots or units (default: the strategy's own)")
	flags.IntVar(&f.Replicas, "replicas", 2,
		fmt.Sprintf("replicas of the service: 1 to %d; with --target: how many it has", load.MaxReplicas))
	registerRedisReplica(flags, &f.copied)
	f.clusters.register(flags)
	flags.StringVar(&f.sweepText, "sweep", "",
		"vary users, hold, goods or replicas, such as users=1,8,32,128, to see how the cost grows")
	flags.DurationVar(&f.Timeout, "timeout", 20*time.Second, "timeout of a request; should exceed the service's own")
	flags.DurationVar(&f.Budget, "budget", fullBudget,
		"time for everything: slow strategies get fewer requests; 0 for no limit")
	flags.BoolVar(&f.quick, "quick", false, "a smoke test: one round of 600 requests, in a minute and a half")
	flags.BoolVar(&f.faults, "play-faults", true,
		"after the load, play the fault scenarios about which strategies make claims; never with "+
			"--quick, --target, --replicas 1, or a load other than the standard one")
	flags.BoolVar(&f.explore, "explore", true, "after the load, execute every interleaving of two requests, as "+
		"explore --quick does; never with --quick, --target, servers of yours, or a load other than the standard one")
	flags.StringVar(&f.Dir, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.local.registerTiDB(flags)
	f.attach.register(flags)
}

// checkMix returns an error if the flags that decide which items are asked for cannot work. It parses --counts.
func (f *runFlags) checkMix() error {
	first, last, isRange := strings.Cut(f.counts, "-")
	if !isRange {
		last = first
	}
	var errs [2]error
	f.MinCount, errs[0] = strconv.ParseInt(first, 10, 64)
	f.MaxCount, errs[1] = strconv.ParseInt(last, 10, 64)
	switch {
	case errors.Join(errs[:]...) != nil:
		return fmt.Errorf("--counts %q: must be a number, or a range such as 1-3", f.counts)
	case f.Goods < 1 || f.Goods > maxGoods:
		return fmt.Errorf("--goods %d: must be a number from 1 to %d", f.Goods, maxGoods)
	case f.MinCount < 1 || f.MaxCount < f.MinCount || f.MaxCount > maxUnits:
		return fmt.Errorf("--counts %s: must be a number or a range between 1 and %d", f.counts, maxUnits)
	}
	_, err := traffic.NewMix(traffic.MixConfig{Goods: f.Goods, Skew: f.Skew, MinCount: f.MinCount, MaxCount: f.MaxCount})
	return err
}

// check returns an error for flags that cannot work, before any server is started.
func (f *runFlags) check(flags *pflag.FlagSet) error {
	if err := f.checkLoad(flags); err != nil {
		return err
	}
	switch {
	case flags.Changed("strategies") && len(f.strategies) == 0:
		return errors.New("--strategies is empty: leave it out for every strategy, or name some")
	case flags.Changed("rounds") && (f.Rounds < 1 || f.Rounds > load.MaxRounds):
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
	case f.Timeout <= 0:
		return fmt.Errorf("--timeout %v: must be positive", f.Timeout)
	case f.Budget < 0:
		return fmt.Errorf("--budget %v: must not be negative; 0 is no limit", f.Budget)
	}
	return cmp.Or(f.clusters.check(), f.checkMix(), f.checkStock(flags), f.parseSweep(flags), f.checkServers())
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
	case axis == history.AxisReplicas && f.attach.target != "" && f.attach.single == "":
		return errors.New("--sweep replicas with --target needs --single, to reach only one replica")
	case axis == history.AxisReplicas && f.attach.target != "" && (f.Sweep.Values[0] != 1 || len(f.Sweep.Values) > 2):
		return errors.New("--sweep replicas with --target needs two values: 1, for --single, and how many --target has")
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
		return errors.New("--single, --admin, --redlock and --key-prefix need --target: without it, the lab starts " +
			"the service")
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
	return cmp.Or(checkServers("redis", f.attach.redis), checkServers("redlock", f.attach.redlock))
}

// setDefaults sets the defaults that depend on other flags, and a random seed.
func (f *runFlags) setDefaults(flags *pflag.FlagSet) {
	f.WarmUp = fullWarmUp
	if f.quick {
		f.setQuick(flags)
	}
	if f.Duration > 0 {
		f.Requests = 0
		// Do not shorten runs of a given length for the sake of a default.
		if !flags.Changed("budget") {
			f.Budget = 0
		}
	}
	cannotAdapt := f.Sweep.Axis != "" || f.Rate > 0 || f.Duration > 0 || f.Restock > 0 || f.Budget == 0
	if cannotAdapt {
		f.Rounds = cmp.Or(f.Rounds, fixedRounds)
	}
	standard := !cannotAdapt && f.Stock == 0 && f.Workload == "" && f.Hold == 0
	f.explore = f.explore && standard && !f.quick && f.attach.target == "" &&
		f.attach.mysqlDSN == "" && len(f.attach.redis) == 0
	f.faults = f.faults && standard && !f.quick && f.attach.target == "" && f.Replicas >= 2
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
	if !flags.Changed("budget") {
		f.Budget = quickBudget
	}
}

// loadBudget is the part of the budget that is not kept for the fault scenarios and the exploration.
func (f *runFlags) loadBudget() time.Duration {
	left := f.Budget
	if f.faults {
		left -= fault.BasicTime
	}
	if f.explore {
		left -= quickTime
	}
	return max(left, f.Budget/2)
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
