package locks_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"stock/internal/servers/serverstest"
)

var shared serverstest.Servers

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		// Most of these tests wait for leases to end, not for a CPU.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	redis.SetLogger(quiet{}) // connections are cut on purpose
	code := shared.Run(m)
	if err := goleak.Find(
		// The thread that starts all servers lives as long as this process.
		goleak.IgnoreTopFunction("stock/internal/servers.startOnOneThread"),
	); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left although the tests have closed their locks and connections:", err)
		code = 1
	}
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
