package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"stock/internal/must"
)

func TestWrongUsageIsOneClearLine(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	busy := listener.Addr().String()
	for _, test := range []struct{ args, want string }{
		{"run --goods 0", "--goods 0: must be a number from 1 to 1000000"},
		{"run --goods 1000001", "--goods 1000001: must be a number from 1 to 1000000"},
		{"run --users 0", "--users 0: must be at least 1"},
		{"run --users 10001", "--users 10001: one process can simulate at most 10000"},
		{"run --rounds 0", "--rounds 0: must be a number from 1 to 1000"},
		{"run --rounds 1001", "--rounds 1001: must be a number from 1 to 1000"},
		{"run --stock -1", "--stock -1: must be at least 1"},
		{"run --restock -1", "--restock -1: must be a number of units, at most 1000000"},
		{"run --rate -5", "--rate -5: must be requests per second"},
		{"run --rate NaN", "--rate NaN: must be requests per second"},
		{"run --duration 0", "--duration 0s: must be positive"},
		{"run --workload calm", "--workload \"calm\": must be plenty or flash-sale"},
		{"run --workload plenty --stock 10", "--workload and --stock exclude each other"},
		{"run --target http://a --admin http://b --stock-binary stock", "--stock-binary is useless with --target"},
		{"run --requests 10 --duration 1s", "--requests and --duration exclude each other"},
		{"run --etcd-members 2", "--etcd-members 2: must be 1 or 3"},
		{"run --redis 127.0.0.1:1 --redis-cluster", "--redis-cluster and --redis exclude each other"},
		{"up --redis 127.0.0.1:1 --redis-cluster", "--redis-cluster and --redis exclude each other"},
		{"up --mysql-dsn root@tcp(h:1)/ --tidb tidb-server", "--tidb and --mysql-dsn exclude each other"},
		{"run --redis redis://:secret@h", "--redis must be host:port; put the password of Redis into"},
		{"faults --redis h:1,h:1", "--redis names h:1 twice"},
		{"run --target http://a --admin http://b --redis redis://:secret@h", "--redis must be host:port"},
		{"up --etcd-members 5", "--etcd-members 5: must be 1 or 3"},
		{
			"run --target http://a --admin http://b --redis-cluster",
			"--redis-cluster, --etcd-members and --tidb are useless with --target: the lab starts no servers",
		},
		{"run --replicas 9", "--replicas 9: must be a number from 1 to 8"},
		{"run --target http://a --admin http://b --replicas 0", "--replicas 0: must be at least 1"},
		{"run --sweep users=8,1", "--sweep users=8,1: 1 after 8: values must ascend"},
		{"run --sweep users=1,8 --users 3", "--users and --sweep users exclude each other"},
		{"run --sweep users=1,8 --rate 10", "--sweep users needs a closed loop"},
		{"run --target http://a --admin http://b --sweep replicas=1,2", "--sweep replicas and --target exclude"},
		{"run --admin http://127.0.0.1:1", "need --target"},
		{"run --target http://127.0.0.1:1", "--target needs --admin"},
		{"run --target http://a --admin http://b --mysql-tls ca=/no/such/file", "--mysql-tls: read the certificate"},
		{"run --target http://a --admin http://b --redis-tls cacert=x", "--redis-tls: it must be on, or"},
		{"run --target http://a --admin http://b --redis-user lab", "--redis-user needs a password"},
		{"run --admin http://a --target http://127.0.0.1:1 --strategies update", "get the strategies"},
		{"run --strategies=", "--strategies is empty: leave it out for every strategy, or name some"},
		{"run --strategy update", `unknown flag: --strategy: did you mean "--strategies"?; see loadtest run --help`},
		{"run --frobnicate", "unknown flag: --frobnicate; see loadtest run --help"},
		{"up --listen " + busy, "--listen: listen tcp " + busy},
		{"verify", "verify needs one DIR, such as out/before"},
		{"verify main.go", "main.go is no directory: DIR must be the directory of a run"},
		{"compare " + empty, "compare needs two reports, such as out/before out/after"},
		{"compare main.go " + empty, "main.go is no report: give a run's directory or its report.json"},
		{"verify " + empty, "holds no histories"},
		{"compare " + empty + " " + empty, "no such file"},
		{"explore --workloads enuogh", `--workloads: no workload is named "enuogh": did you mean "enough"?`},
		{"explore --race 'sell", `--race: 'sell: "'sell" is no verb`},
		{"explore --races 3 --service x.yaml", "--race and --races are for strategies"},
		{"explore --races 3 --replay one:A --strategies update", "--race and --races cannot be used with --replay"},
		{"explore --quick --seed 2", "--seed needs --random or --races"},
		{"explore --races -1", "--races -1: must be 0 to 1000"},
		{"explore --workloads one,x", `--workloads: no workload is named "x"; the names are one, enough, last`},
		{"frobnicate", `unknown command "frobnicate"`},
		{"run extra", `loadtest run takes no arguments, and got "extra"; see loadtest run --help`},
		{"up --replicas x", `--replicas "x": must be a whole number; see loadtest up --help`},
		{"up --replicas 99999999999999999999", `--replicas "99999999999999999999": is out of range`},
		{"run --seed -1", `--seed "-1": must be a whole number, 0 or more`},
		{"faults --repeat 1001", "--repeat 1001: must be a number from 1 to 1000"},
		{"faults --scenarios late-right", `no scenario is named "late-right"`},
		{"up --console 0.0.0.0:0", "is not a loopback address"},
		{"up --console :0", "is not a loopback address"},
		{"up --console 127.0.0.1.nip.io:800", "is not a loopback address"},
		{"up --console 8001", "missing port"},
		{"up --console " + busy, "address already in use"},
	} {
		args := strings.Fields(test.args)
		out := filepath.Join(empty, "out")
		if args[0] == "run" {
			args = append(args, "--out", out)
		}
		got := runHere(t.Context(), args...)
		if got.code != exitUnusable || !strings.Contains(got.stderr, test.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q, want %d and one line with %q", test.args, got.code, got.stderr, exitUnusable, test.want)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s was not removed: %v", test.args, out, err)
		}
	}
}

func TestAWrongValueInTheEnvironmentIsWrongUsage(t *testing.T) {
	t.Parallel()
	runWith(t.Context(), map[string]string{"LOADTEST_REQUESTS": "many"}, "run", "--out", t.TempDir()).
		want(t, exitUnusable, "LOADTEST_REQUESTS: ")
}

// The variable of a flag sets it in every command, so flags with the same name have the same type.
func TestAVariableHasOneType(t *testing.T) {
	t.Parallel()
	types := map[string]string{}
	for _, command := range commands(os.Getenv) {
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			kind, known := types[flag.Name]
			if known && kind != flag.Value.Type() {
				t.Errorf("%s: it is of type %s in %s, and %s elsewhere",
					variable(flag.Name), flag.Value.Type(), command.Name(), kind)
			}
			types[flag.Name] = flag.Value.Type()
		})
	}
}
