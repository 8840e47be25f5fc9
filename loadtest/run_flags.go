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
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
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
	attach attachFlags
	local  localFlags

	serviceFile string
	service     *service.Description // of the user's; nil: strategies are run

	strategies []string
	users      int
	requests   int
	duration   time.Duration
	rate       float64
	rounds     int
	stock      int64
	workload   string
	restock    int64
	keys       bool
	goods      int
	skew       string
	counts     string
	seed       uint64
	hold       time.Duration
	store      string
	replicas   int
	copied     bool // by a Redis replica
	clusters   clusterFlags
	timeout    time.Duration
	budget     time.Duration
	sweepText  string
	sweep      scenario.Sweep // parsed from sweepText by check
	out        string
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
	flags.IntVar(&f.users, "users", 100, "concurrent users; with --rate, the most requests in flight")
	flags.IntVar(&f.requests, "requests", fullRequests, "requests of each run")
	flags.DurationVar(&f.duration, "duration", 0, "time of each run, instead of --requests")
	flags.Float64Var(&f.rate, "rate", 0, "open loop: requests per second, however slow the service is")
	flags.IntVar(&f.rounds, "rounds", 0,
		"how often everything is run (default: each row at least three times, until its interval is narrow; "+
			"with --sweep, --rate, --duration, --restock or --budget 0: 3)")
	flags.Int64Var(&f.stock, "stock", 0, "units of all items together, instead of the two workloads")
	flags.StringVar(&f.workload, "workload", "", "run only this workload: plenty or flash-sale (default: both)")
	flags.Int64Var(&f.restock, "restock", 0,
		"units to put back every 20 ms of a run, into each item in turn; a lock without a fence loses some")
	flags.BoolVar(&f.keys, "keys", false, "send an Idempotency-Key with every request, to strategies that keep it")
	flags.IntVar(&f.goods, "goods", 1, "number of different items, with IDs from 1")
	flags.StringVar(&f.skew, "skew", traffic.Uniform, "how often each item is asked for: uniform or zipf")
	flags.StringVar(&f.counts, "counts", "1", "units per request: a number, or a range such as 1-3")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of all randomness (default: a random one)")
	flags.DurationVar(&f.hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.StringVar(&f.store, "store", "", "mysql, redis, slots or units (default: the strategy's own)")
	flags.IntVar(&f.replicas, "replicas", 2,
		fmt.Sprintf("replicas of the service: 1 to %d; with --target: how many it has", scenario.MaxReplicas))
	registerRedisReplica(flags, &f.copied)
	f.clusters.register(flags)
	flags.StringVar(&f.sweepText, "sweep", "",
		"vary users, hold, goods or replicas, such as users=1,8,32,128, to see how the cost grows")
	flags.DurationVar(&f.timeout, "timeout", 20*time.Second, "timeout of a request; should exceed the service's own")
	flags.DurationVar(&f.budget, "budget", fullBudget,
		"time for everything: slow strategies get fewer requests; 0 for no limit")
	flags.BoolVar(&f.quick, "quick", false, "a smoke test: one round of 600 requests, in a minute and a half")
	flags.BoolVar(&f.faults, "faults", true,
		"after the load, play the fault scenarios about which strategies make claims; never with "+
			"--quick, --target, --replicas 1, or a load other than the standard one")
	flags.BoolVar(&f.explore, "explore", true, "after the load, execute every interleaving of two requests, as "+
		"explore --quick does; never with --quick, --target, servers of yours, or a load other than the standard one")
	flags.StringVar(&f.out, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.local.registerTiDB(flags)
	f.attach.register(flags)
}

// mix parses the flags that decide which items are asked for.
func (f *runFlags) mix() (traffic.MixConfig, error) {
	first, last, isRange := strings.Cut(f.counts, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.ParseInt(first, 10, 64)
	high, err2 := strconv.ParseInt(last, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return traffic.MixConfig{}, fmt.Errorf("--counts %q: must be a number, or a range such as 1-3", f.counts)
	}
	switch {
	case f.goods < 1 || f.goods > maxGoods:
		return traffic.MixConfig{}, fmt.Errorf("--goods %d: must be a number from 1 to %d", f.goods, maxGoods)
	case low < 1 || high < low || high > maxUnits:
		return traffic.MixConfig{}, fmt.Errorf("--counts %s: must be a number or a range between 1 and %d",
			f.counts, maxUnits)
	}
	return traffic.MixConfig{Seed: f.seed, Goods: f.goods, Skew: f.skew, MinCount: low, MaxCount: high}, nil
}

// check returns an error for flags that cannot work, before any server is started.
func (f *runFlags) check(flags *pflag.FlagSet) error {
	if err := f.checkLoad(flags); err != nil {
		return err
	}
	switch {
	case flags.Changed("strategies") && len(f.strategies) == 0:
		return errors.New("--strategies is empty: leave it out for every strategy, or name some")
	case flags.Changed("rounds") && (f.rounds < 1 || f.rounds > scenario.MaxRounds):
		return fmt.Errorf("--rounds %d: must be a number from 1 to %d", f.rounds, scenario.MaxRounds)
	case f.restock < 0 || f.restock > maxUnits:
		return fmt.Errorf("--restock %d: must be a number of units, at most %d", f.restock, maxUnits)
	case f.attach.target == "":
		if err := checkReplicas(f.replicas); err != nil {
			return err
		}
	case f.replicas < 1:
		return fmt.Errorf("--replicas %d: must be at least 1", f.replicas)
	}
	switch {
	case f.store != "" && !slices.Contains(oracle.Stores, f.store):
		return fmt.Errorf("--store %q: must be one of %s", f.store, strings.Join(oracle.Stores, ", "))
	case f.hold < 0 || f.hold > scenario.MaxHold || f.hold%time.Millisecond != 0:
		return fmt.Errorf("--hold %v: must be whole milliseconds, at most %v", f.hold, scenario.MaxHold)
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %v: must be positive", f.timeout)
	case f.budget < 0:
		return fmt.Errorf("--budget %v: must not be negative; 0 is no limit", f.budget)
	}
	return cmp.Or(f.clusters.check(), f.checkStock(flags), f.parseSweep(flags), f.checkServers())
}

// checkStock returns an error for flags of the stock that cannot work.
func (f *runFlags) checkStock(flags *pflag.FlagSet) error {
	switch {
	case f.stock < 0 || flags.Changed("stock") && f.stock == 0:
		return fmt.Errorf("--stock %d: must be at least 1", f.stock)
	case f.workload != "" && f.workload != scenario.Plenty && f.workload != scenario.FlashSale:
		return fmt.Errorf("--workload %q: must be plenty or flash-sale", f.workload)
	case f.workload != "" && f.stock > 0:
		return errors.New("--workload and --stock exclude each other: with --stock, there are no other workloads")
	}
	return nil
}

// checkLoad returns an error for flags of the load that cannot work.
func (f *runFlags) checkLoad(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("requests") && flags.Changed("duration"):
		return errors.New("--requests and --duration exclude each other")
	case f.requests < 1:
		return fmt.Errorf("--requests %d: must be at least 1", f.requests)
	case f.duration < 0 || flags.Changed("duration") && f.duration == 0:
		return fmt.Errorf("--duration %v: must be positive", f.duration)
	case f.users < 1:
		return fmt.Errorf("--users %d: must be at least 1", f.users)
	case f.users > scenario.MaxUsers:
		return fmt.Errorf("--users %d: one process can simulate at most %d", f.users, scenario.MaxUsers)
	case !(f.rate >= 0 && f.rate <= maxRate): // also true for NaN
		return fmt.Errorf("--rate %g: must be requests per second, at most %d; 0 is a closed loop", f.rate, int(maxRate))
	}
	return nil
}

// parseSweep reads --sweep. A sweep over replicas sets f.replicas to its last value.
func (f *runFlags) parseSweep(flags *pflag.FlagSet) (err error) {
	if f.sweepText == "" {
		return nil
	}
	if f.sweep, err = scenario.ParseSweep(f.sweepText); err != nil {
		return fmt.Errorf("--sweep %s: %w", f.sweepText, err)
	}
	switch axis := f.sweep.Axis; {
	case flags.Changed(axis):
		return fmt.Errorf("--%s and --sweep %s exclude each other", axis, axis)
	case axis == history.AxisUsers && f.rate > 0:
		return errors.New("--sweep users needs a closed loop: with --rate, more users do not send more requests")
	case axis == history.AxisReplicas && f.attach.target != "" && f.attach.single == "":
		return errors.New("--sweep replicas with --target needs --single, to reach only one replica")
	case axis == history.AxisReplicas && f.attach.target != "" && (f.sweep.Values[0] != 1 || len(f.sweep.Values) > 2):
		return errors.New("--sweep replicas with --target needs two values: 1, for --single, and how many --target has")
	case axis == history.AxisReplicas:
		f.replicas = int(f.sweep.Values[len(f.sweep.Values)-1])
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
	return a.checkOwn(f.local.tidb, f.clusters)
}

// checkTarget returns an error for flags that cannot work with --target.
func (f *runFlags) checkTarget() error {
	switch {
	case f.attach.admin == "":
		return errors.New("--target needs --admin: the lab sets the stock through the admin listener")
	case f.clusters.given() || f.local.tidb != "":
		return errors.New("--redis-cluster, --etcd-members, --galera and --tidb are useless with --target: " +
			"the lab starts no servers")
	case f.local.stockBinary != "":
		return errors.New("--stock-binary is useless with --target: the lab starts no replicas")
	}
	return cmp.Or(checkServers("redis", f.attach.redis), checkServers("redlock", f.attach.redlock))
}

// setDefaults sets the defaults that depend on other flags, and a random seed.
func (f *runFlags) setDefaults(flags *pflag.FlagSet) {
	if f.quick {
		f.setQuick(flags)
	}
	if f.duration > 0 {
		f.requests = 0
		// Do not shorten runs of a given length for the sake of a default.
		if !flags.Changed("budget") {
			f.budget = 0
		}
	}
	cannotAdapt := f.sweep.Axis != "" || f.rate > 0 || f.duration > 0 || f.restock > 0 || f.budget == 0
	if cannotAdapt {
		f.rounds = cmp.Or(f.rounds, fixedRounds)
	}
	standard := !cannotAdapt && f.stock == 0 && f.workload == "" && f.hold == 0
	f.explore = f.explore && standard && !f.quick && f.attach.target == "" &&
		f.attach.mysqlDSN == "" && len(f.attach.redis) == 0
	f.faults = f.faults && standard && !f.quick && f.attach.target == "" && f.replicas >= 2
	if f.faults {
		f.faultsLeftOut = f.attach.noFaults()
		f.faults = f.faultsLeftOut == ""
	}
	f.seed = cmp.Or(f.seed, newSeed())
}

func (f *runFlags) setQuick(flags *pflag.FlagSet) {
	if !flags.Changed("requests") {
		f.requests = quickRequests
	}
	if !flags.Changed("rounds") {
		f.rounds = quickRounds
	}
	if !flags.Changed("budget") {
		f.budget = quickBudget
	}
}

// loadBudget is the part of the budget that is not kept for the fault scenarios and the exploration.
func (f *runFlags) loadBudget() time.Duration {
	left := f.budget
	if f.faults {
		left -= fault.BasicTime
	}
	if f.explore {
		left -= quickTime
	}
	return max(left, f.budget/2)
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

func (f *runFlags) warmUp() time.Duration {
	if f.quick {
		return quickWarmUp
	}
	return fullWarmUp
}
