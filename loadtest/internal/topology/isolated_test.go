package topology_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
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

// openPorts is a service of the user's. It listens at LISTEN some time after it has opened another port.
func openPorts(delay string) {
	after, err := time.ParseDuration(delay)
	for _, address := range []string{"127.0.0.1:0", os.Getenv("LISTEN")} {
		if err == nil {
			_, err = net.Listen("tcp", address)
		}
		time.Sleep(after)
	}
	fmt.Fprintln(os.Stderr, err)
}

func TestAServiceMayOpenAnotherPortLongBeforeItsOwn(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	must.Succeed(t, err)
	slow, err := lab.StartCommand(t.Context(), "slow", []string{program, "5s"}, "", lab.Addresses())
	must.Succeed(t, err)
	must.Succeed(t, slow.Kill())

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = lab.StartCommand(ctx, "deaf", []string{program, "1h"}, "", lab.Addresses())
	if err == nil || !strings.Contains(err.Error(), "it listens at 127.0.0.1:") {
		t.Errorf("%v, want where it listens", err)
	}
}
