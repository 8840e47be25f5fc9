package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/traffic"
)

// mostUnits is the largest order that the service takes.
const mostUnits = 1_000_000

// mixFlags say what customers ask for.
type mixFlags struct {
	goods  int
	skew   string
	counts string
	seed   uint64
}

func (m *mixFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&m.goods, "goods", 1, "number of different goods, with ids from 1")
	flags.StringVar(&m.skew, "skew", traffic.Uniform, "how often each goods is asked for: uniform or zipf")
	flags.StringVar(&m.counts, "counts", "1", "units an order: a number, or a range such as 1-3")
	flags.Uint64Var(&m.seed, "seed", 0, "seed of all randomness (default: a new one, which the report tells)")
}

func (m *mixFlags) config() (traffic.MixConfig, error) {
	if m.seed == 0 {
		m.seed = uint64(rand.Uint32()) + 1 // short enough to be typed again
	}
	first, last, isRange := strings.Cut(m.counts, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.ParseInt(first, 10, 64)
	high, err2 := strconv.ParseInt(last, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return traffic.MixConfig{}, fmt.Errorf("--counts %q: a number or a range such as 1-3 is needed", m.counts)
	}
	switch {
	case m.goods < 1:
		return traffic.MixConfig{}, fmt.Errorf("--goods %d: at least 1 is needed", m.goods)
	case low < 1 || high < low || high > mostUnits:
		return traffic.MixConfig{}, fmt.Errorf("--counts %s: a number or a range between 1 and %d is needed", m.counts, mostUnits)
	}
	return traffic.MixConfig{Seed: m.seed, Goods: m.goods, Skew: m.skew, MinCount: low, MaxCount: high}, nil
}

func targetsCommand() *cobra.Command {
	var (
		mix    mixFlags
		target string
		load   traffic.Load
		hold   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "Write targets for vegeta, as JSON lines",
		Long:  `targets writes deductions in vegeta's JSON format to standard output, without end unless --requests is given.`,
		Example: `  loadtest targets --strategy update --goods 5 --skew zipf --counts 1-3 |
    go tool vegeta attack -format=json -lazy -rate=500 -duration=5s | go tool vegeta report`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at, err := url.Parse(target); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
				return fmt.Errorf("--target %q: a URL such as http://127.0.0.1:8000 is needed", target)
			}
			config, err := mix.config()
			if err != nil {
				return err
			}
			if load.Mix, err = traffic.NewMix(config); err != nil {
				return err
			}
			load.Hold = hold
			load.OrderPrefix = fmt.Sprintf("%x-vegeta", mix.seed)
			// An endless stream ends as that of any program does: by SIGPIPE, when the reader has had enough.
			return traffic.WriteTargets(cmd.Context(), cmd.OutOrStdout(), target, load)
		},
	}
	flags := cmd.Flags()
	mix.register(flags)
	flags.StringVar(&target, "target", "http://127.0.0.1:8000", "URL of the service")
	flags.StringVar(&load.Strategy, "strategy", "", "strategy (default: the service's)")
	flags.StringVar(&load.Store, "store", "", "mysql, redis or slots (default: the strategy's)")
	flags.DurationVar(&hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.IntVar(&load.Requests, "requests", 0, "number of targets (default: without end)")
	return cmd
}
