package topology_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

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

	patience := time.Duration(0)
	serverstest.Eventually(t, "the error says where it listens", func() bool {
		patience += 3 * time.Second // a busy machine may open the port later
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := lab.StartCommand(ctx, "deaf", []string{program, "1h"}, "", lab.Addresses())
		return err != nil && strings.Contains(err.Error(), "it listens at 127.0.0.1:")
	})
}
