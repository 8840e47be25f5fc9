package topology_test

import (
	"context"
	"errors"
	"testing"

	"stock/loadtest/internal/topology"
)

func TestAReplicaThatCannotStartIsAnError(t *testing.T) {
	at := lab.Addresses()
	at.MySQLDSN = "no data source name"
	if r, err := lab.StartIsolated(t.Context(), "victim", at, topology.Options{}); r != nil || err == nil {
		t.Errorf("without a database: %v, %v, want an error alone", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := lab.StartIsolated(ctx, "victim", lab.Addresses(), topology.Options{})
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v, %v, want %v alone", r, err, context.Canceled)
	}
}
