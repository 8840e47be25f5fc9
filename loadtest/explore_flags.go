package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"stock/internal/suggest"
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
)

type exploreFlags struct {
	local      localFlags
	strategies []string
	store      string
	bounds     trace.Bounds
	lanes      int
	requests   int
	workloads  []string
	races      int
	race       string
	refuted    bool
	quick      bool
	replay     string
	traces     bool
	terminals  bool
	statements bool
	out        string

	serviceFile string
	service     *service.Description // of the user's; nil: strategies or scripts are explored

	scripts []*explore.Script
	engine  string // that executes their SQL
}

// defaultRaces are not many: each has its own requests, with all of their schedules.
const defaultRaces = 4

func (f *exploreFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.strategies, "strategies", nil, "explore only these strategies, a comma-separated list")
	flags.StringVar(&f.store, "store", "", "mysql, redis, slots or units (default: every store that a strategy works on; "+
		"with --quick and --replay, its default store)")
	flags.IntVar(&f.requests, "requests", 2, "how many requests a schedule has, 2 or 3")
	flags.IntVar(&f.bounds.Faults, "faults", 1, "the most faults in one schedule, 0 to 2")
	flags.IntVar(&f.bounds.Preemptions, "preemptions", 2,
		"the most switches away from a request that could go on, in one schedule; -1: no limit, the default for scripts")
	flags.BoolVar(&f.quick, "quick", false, "no faults and few workloads with keys: all strategies in about a minute")
	flags.BoolVar(&f.bounds.NoReduction, "no-reduction", false,
		"also execute schedules that differ only in the order of steps that do not affect each other")
	flags.BoolVar(&f.bounds.Random, "random", false, "execute schedules at random, for what is too large to be exhausted")
	flags.Uint64Var(&f.bounds.Seed, "seed", 1,
		"the same seed leads to the same races, and with --random to the same schedules")
	flags.DurationVar(&f.bounds.Duration, "duration", 10*time.Second, "with --random: how long each strategy is explored")
	flags.StringSliceVar(&f.workloads, "workloads", nil,
		"what the requests ask for: only these workloads, a comma-separated list of "+
			strings.Join(explore.Names(), ", "))
	flags.IntVar(&f.races, "races", defaultRaces, "how many races to make up for each strategy on each store: other "+
		"requests, which clients send at the same time (with --quick, --workloads, --race and --statements: 0)")
	flags.StringVar(&f.race, "race", "", "explore this race, and no workload unless --workloads names it, such as "+
		"'set 10a / sell 1a k / cancel k': what is before it, and what each client asks for")
	flags.BoolVar(&f.refuted, "until-refuted", false, "explore a strategy only until one of its claims is refuted")
	flags.IntVar(&f.lanes, "lanes", 4, "how many schedules are executed at the same time, each on servers of its own")
	flags.StringVar(&f.replay, "replay", "", "execute only the schedule of this token, and print its trace; "+
		"the status says whether that was possible")
	flags.BoolVar(&f.traces, "traces", false, "print the shortest trace of each kind of damage")
	flags.BoolVar(&f.terminals, "terminals", false, "print these traces as text that can be typed into terminals")
	flags.BoolVar(&f.statements, "statements", false, "only print what is sent to the stores for each workload, as text "+
		"that can be typed, when each request has ended before the next one begins")
	flags.StringVar(&f.out, "out", "", "directory for explore.json and explore.html (default: none is written)")
	flags.StringVar(&f.engine, "engine", explore.MySQL, "what executes the SQL of scripts: mysql, postgres, "+
		"or the address of your own PostgreSQL, such as postgres://shop@db.example/shop")
	f.local.register(flags)
	registerService(flags, &f.serviceFile)
}

// check returns what is wrong with the flags and arguments. dash is the number of arguments before --, or -1.
func (f *exploreFlags) check(flags *pflag.FlagSet, args []string, dash int, getenv func(string) string) error {
	switch {
	case f.bounds.Faults < 0 || f.bounds.Faults > 2:
		return fmt.Errorf("--faults %d: must be 0, 1 or 2", f.bounds.Faults)
	case f.bounds.Preemptions < -1:
		return fmt.Errorf("--preemptions %d: must be at least 0, or -1 for no limit", f.bounds.Preemptions)
	case f.requests < 2 || f.requests > 3:
		return fmt.Errorf("--requests %d: must be 2 or 3", f.requests)
	case f.lanes < 1 || f.lanes > 16:
		return fmt.Errorf("--lanes %d: must be 1 to 16", f.lanes)
	case f.quick && flags.Changed("faults"):
		return errors.New("--quick and --faults cannot be used together: --quick is without faults")
	}
	if err := f.checkSearch(flags); err != nil {
		return err
	}
	if f.quick {
		f.bounds.Faults = 0
	}
	if err := f.checkRaces(flags, dash < 0 && f.serviceFile == "" && !areScripts(args, dash)); err != nil {
		return err
	}
	if f.quick && len(f.workloads) == 0 {
		f.workloads = explore.QuickNames()
	}
	if areScripts(args, dash) {
		return f.checkScripts(flags, args)
	}
	if flags.Changed("engine") {
		return errors.New("--engine is for scripts, files that end in .star: strategies are on MySQL, and the " +
			"file of a service says what that is on")
	}
	if dash < 0 && f.serviceFile == "" {
		return f.checkStrategies(args)
	}
	if f.race != "" || flags.Changed("races") {
		return errors.New("--race and --races are for strategies: of a service of yours, too little is known")
	}
	return f.readService(args, dash, getenv)
}

// checkRaces returns what is wrong with the flags of races, which are for strategies.
func (f *exploreFlags) checkRaces(flags *pflag.FlagSet, strategies bool) error {
	if f.race != "" {
		clients, err := explore.CheckRace(f.race)
		if err != nil {
			return fmt.Errorf("--race: %w", err)
		}
		f.workloads, f.requests = append(f.workloads, f.race), max(f.requests, clients)
	}
	if (f.quick || f.statements || f.workloads != nil || !strategies) && !flags.Changed("races") {
		f.races = 0
	}
	if !f.bounds.Random && f.races == 0 && flags.Changed("seed") {
		return errors.New("--seed needs --random or --races")
	}
	return nil
}

// checkSearch returns what is wrong with the flags that say how schedules are chosen.
func (f *exploreFlags) checkSearch(flags *pflag.FlagSet) error {
	for _, name := range f.workloads {
		if known := explore.Names(); !slices.Contains(known, name) {
			return fmt.Errorf("--workloads: no workload is named %q%s", name,
				cmp.Or(suggest.DidYouMean(name, known), "; the names are "+strings.Join(known, ", ")))
		}
	}
	switch {
	case f.races < 0 || f.races > 1000:
		return fmt.Errorf("--races %d: must be 0 to 1000", f.races)
	case f.bounds.Random && f.bounds.NoReduction:
		return errors.New("--random and --no-reduction cannot be used together: nothing is left out at random")
	case f.bounds.Random && f.bounds.Duration <= 0:
		return fmt.Errorf("--duration %v: must be longer than 0", f.bounds.Duration)
	case !f.bounds.Random && flags.Changed("duration"):
		return errors.New("--duration needs --random")
	case f.statements && f.replay != "":
		return errors.New("--statements and --replay cannot be used together")
	case f.replay != "" && (f.race != "" || flags.Changed("races")):
		return errors.New("--race and --races cannot be used with --replay, whose token names what is asked for")
	case f.replay != "" && flags.Changed("lanes"):
		return errors.New("--lanes cannot be used with --replay, which executes one schedule")
	}
	return nil
}

func (f *exploreFlags) checkStrategies(args []string) error {
	switch {
	case f.store != "" && !slices.Contains(oracle.Stores, f.store):
		return fmt.Errorf("--store %s: must be %s", f.store, strings.Join(oracle.Stores, ", "))
	case len(args) > 0:
		return fmt.Errorf("%q: strategies are named with --strategies, and the command of your service follows --", args[0])
	case f.replay != "" && len(f.strategies) != 1:
		return errors.New("--replay needs --strategies with one strategy: that of the token")
	}
	return nil
}

// readService reads the description of the user's service, or takes the arguments for its command.
func (f *exploreFlags) readService(args []string, dash int, getenv func(string) string) (err error) {
	switch {
	case f.strategies != nil || f.store != "":
		return errors.New("--strategies and --store cannot be used with a service of yours")
	case f.serviceFile != "" && len(args) > 0:
		return fmt.Errorf("%q: the command of your service stands in the file of --service", args[0])
	case dash > 0:
		return fmt.Errorf("%q stands before --, where only flags may be", args[0])
	case f.serviceFile == "" && len(args) == 0:
		return errors.New("the command is missing: give it after --")
	case f.serviceFile == "":
		f.service = service.Default(args)
		return nil
	}
	if f.service, err = service.Read(f.serviceFile, getenv); err != nil {
		return err
	}
	return explore.CheckService(f.service)
}
