package main

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/traffic"
)

func targetsCommand() *cobra.Command {
	var (
		request requestFlags
		target  string
		load    traffic.Load
	)
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "Write targets for vegeta, as JSON lines",
		Long:  `targets writes deductions in vegeta's JSON format to standard output, endlessly unless --requests is given.`,
		Example: `  loadtest targets --strategy update --goods 5 --skew zipf --counts 1-3 |
    go tool vegeta attack -format=json -lazy -rate=500 -duration=5s | go tool vegeta report`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u, err := url.Parse(target); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return fmt.Errorf("--target %q: must be a URL such as http://127.0.0.1:8000", target)
			}
			request.seed = cmp.Or(request.seed, newSeed())
			config, err := request.mix()
			if err != nil {
				return err
			}
			if load.Mix, err = traffic.NewMix(config); err != nil {
				return err
			}
			load.Hold, load.Store = request.hold, request.store
			load.RequestPrefix = fmt.Sprintf("%x-vegeta", request.seed)
			// An endless stream ends by SIGPIPE when the reader closes the pipe.
			return traffic.WriteTargets(cmd.Context(), cmd.OutOrStdout(), target, load)
		},
	}
	flags := cmd.Flags()
	request.register(flags)
	flags.StringVar(&target, "target", "http://127.0.0.1:8000", "URL of the service")
	flags.StringVar(&load.Strategy, "strategy", "", "strategy (default: the service's)")
	flags.IntVar(&load.Requests, "requests", 0, "number of targets (default: endless)")
	return cmd
}
