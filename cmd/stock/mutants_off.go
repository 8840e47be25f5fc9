//go:build !mutants

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

// mutation is empty: only a program built with the tag mutants can plant bugs. See mutants_on.go.
type mutation struct{}

func (mutation) register(*pflag.FlagSet) {}

// plant returns the strategies to serve.
func (mutation) plant(*serveOptions, *closers) ([]stock.Strategy, error) {
	return catalogue.Strategies, nil
}

func mutantCommands() []*cobra.Command { return nil }
