package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type healthcheckOptions struct {
	url     string
	ready   bool
	timeout time.Duration
}

func newHealthcheck(getenv func(string) string) *cobra.Command {
	var o healthcheckOptions
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running service whether it is alive",
		Long: `Ask a running service whether it is alive or, with --ready, whether requests should be sent to it. The exit
status is 0 if so, otherwise 1. This is for containers whose image has no other program.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.check(cmd.Context()) },
	}
	setFlags(cmd, getenv, group("Flags", func(f *pflag.FlagSet) {
		f.StringVar(&o.url, "url", "http://127.0.0.1:8080", "`URL` of the service")
		f.BoolVar(&o.ready, "ready", false, "ask /readyz instead of /livez")
		f.DurationVar(&o.timeout, "timeout", 3*time.Second, "longest time to wait for the reply")
	}))
	return cmd
}

func (o *healthcheckOptions) check(ctx context.Context) error {
	base, err := url.Parse(o.url)
	if err != nil || base.Host == "" || base.User != nil || base.Scheme != "http" && base.Scheme != "https" {
		// The URL is not quoted: it may contain a password.
		return usagef("--url must be like http://127.0.0.1:8080, without a user or a password")
	}
	path := "livez"
	if o.ready {
		path = "readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path).String(), nil)
	if err != nil {
		return usagef("--url: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // uses no proxy from the environment
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return nil
}
