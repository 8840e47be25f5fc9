package servers_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
)

func TestMain(m *testing.M) {
	if part, found := parts[os.Getenv(asProcess)]; found {
		if err := part(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(shared.Run(m))
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port, err := servers.FreePort()
		must.Succeed(t, err)
		if seen[port] {
			t.Errorf("FreePort returned port %d twice", port)
		}
		seen[port] = true
	}
}
