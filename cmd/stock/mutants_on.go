//go:build mutants

package main

import (
	"encoding/json"
	"slices"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/mutants"
)

// mutation is the mutant of this process. This file is only in programs built with the tag mutants, with which the
// judge is tested. See mutants_off.go for all others.
type mutation struct{ name string }

func (m *mutation) register(f *pflag.FlagSet) {
	f.StringVar(&m.name, "mutant", "", "`name` of the mutant to plant; stock mutants lists them")
}

// plant puts the mutant between the strategies and the servers. It returns the strategies to serve.
func (m *mutation) plant(o *serveOptions, opened *closers) ([]stock.Strategy, error) {
	deps := &o.Deps
	if m.name == "" {
		return catalogue.Strategies, nil
	}
	all := mutants.All()
	i := slices.IndexFunc(all, func(mutant mutants.Mutant) bool { return mutant.Name == m.name })
	if i < 0 {
		return nil, usagef("--mutant is %q: stock mutants lists the names", m.name)
	}
	if deps.MySQL == nil || deps.Redis == nil {
		return nil, usagef("--mutant needs --mysql-dsn and --redis")
	}
	planted := all[i].Plant(o.Replica)
	o.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "stock_mutant_strikes_total",
		Help: "How often the change of the mutant was applied; it may have made no difference.",
	}, func() float64 { return float64(planted.Strikes()) }))
	config, err := o.poolConfig()
	if err != nil {
		return nil, err
	}
	for pool, conns := range map[**sqlx.DB]int{&deps.MySQL: o.mysqlConns, &deps.MySQLLocks: o.mysqlLockConns} {
		if *pool, err = openMySQL(config, conns, o.Log, planted.MySQL); err != nil {
			return nil, err
		}
		opened.add((*pool).Close)
	}
	for _, client := range append([]redis.UniversalClient{deps.Redis}, deps.Redlock...) {
		client.AddHook(planted.Redis())
	}
	return planted.Strategies(catalogue.Strategies), nil
}

func mutantCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:   "mutants",
		Short: "List the mutants in JSON",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(mutants.All())
		},
	}}
}
