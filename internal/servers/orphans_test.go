package servers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// asProcess is an environment variable. It names what the test binary does when a test starts it as another process.
const asProcess = "STOCK_TEST_PROCESS"

var parts = map[string]func(context.Context) error{
	"starts servers":    startServers,
	"runs a program":    runProgram,
	"makes and removes": makeAndRemove,
}

// process prepares the test binary to play one of the parts as a process of its own.
func process(t *testing.T, part string, env ...string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), asProcess+"="+part), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// child is what startServers prints about each server.
type child struct {
	Version string
	PID     int
	Addr    string
	Dir     string
}

// startServers starts one server of each kind, prints them as JSON, and waits until stdin is closed.
func startServers(ctx context.Context) error {
	mysql, err := servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true, Disk: smallDisk})
	if cannotMount(err) {
		mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true})
	}
	if err != nil {
		return err
	}
	redis, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		return err
	}
	port, err := servers.FreePort()
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	balancer, err := servers.StartNginx(ctx, servers.NginxOptions{
		Main:  nginx.Main(),
		Sites: fmt.Sprintf("server { listen %s; return 204; }\n", addr),
		Ready: []string{"http://" + addr},
	})
	if err != nil {
		return err
	}
	etcd, err := servers.StartEtcd(ctx, servers.EtcdOptions{})
	if err != nil {
		return err
	}
	zookeeper, err := servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{})
	if err != nil {
		return err
	}
	postgres, err := servers.StartPostgres(ctx, servers.PostgresOptions{Relaxed: true})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode([]child{
		{mysql.Version, mysql.PID, mysql.Addr, filepath.Dir(mysql.Log)},
		{redis.Version, redis.PID, redis.Addr, filepath.Dir(redis.Log)},
		{balancer.Version, balancer.PID, addr, filepath.Dir(balancer.Log)},
		{etcd.Version, etcd.PID, etcd.Addr, filepath.Dir(etcd.Log)},
		{zookeeper.Version, zookeeper.PID, zookeeper.Addr, filepath.Dir(zookeeper.Log)},
		{postgres.Version, postgres.PID, postgres.Addr, filepath.Dir(postgres.Log)},
	}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

var versions = regexp.MustCompile(`^(MySQL|MariaDB|Redis|nginx|etcd|ZooKeeper|PostgreSQL) \d+\.\d`)

func TestKillingTheParentLeavesNoProcessNoPortAndNoDirectory(t *testing.T) {
	serverstest.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux do children end with a parent that is killed")
	}
	t.Parallel()
	cmd := process(t, "starts servers")
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	var children []child
	if err := json.NewDecoder(stdout).Decode(&children); err != nil {
		t.Fatal("the parent printed no servers: ", errors.Join(err, cmd.Wait()))
	}
	for _, c := range children {
		if len(serverstest.Running(t, c.PID)) == 0 {
			t.Errorf("%s is not running, although its parent is", c.Version)
		}
		if !versions.MatchString(c.Version) {
			t.Errorf("the version of a server is %q", c.Version)
		}
	}

	must.Succeed(t, cmd.Process.Kill())
	cmd.Wait()

	for _, c := range children {
		serverstest.Gone(t, []int{c.PID}, []string{c.Addr})
	}
	newDir(t, "next") // removes the directories of killed processes
	for _, c := range children {
		if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of %s still exists after the next NewDir: %v", c.Version, err)
		}
	}
}

// printPID is a shell script that writes its PID to the file $0 and waits.
const printPID = `echo $$ >"$0.new" && mv "$0.new" "$0" && exec sleep 600`

// pidFile is an environment variable of runProgram: the file to which its program writes its PID.
const pidFile = "STOCK_TEST_PID_FILE"

func runProgram(ctx context.Context) error {
	_, err := servers.Run(ctx, servers.Command{
		Name: "sh", Path: "/bin/sh", Args: []string{"-c", printPID, os.Getenv(pidFile)},
	})
	return err
}

func TestKillingTheParentEndsTheProgramThatItRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux do children end with a parent that is killed")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := process(t, "runs a program", pidFile+"="+file)
	must.Succeed(t, cmd.Start())
	pid := awaitPID(t, file)
	must.Succeed(t, cmd.Process.Kill())
	cmd.Wait()
	serverstest.Gone(t, []int{pid}, nil)
}

func TestRunKillsTheProgramAndItsDescendantsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		_, err := servers.Run(ctx, servers.Command{
			Name: "sh", Path: "/bin/sh", Args: []string{"-c", "(" + printPID + ") & wait", file},
		})
		ran <- err
	}()
	pid := awaitPID(t, file)
	cancel()
	if err := <-ran; err == nil {
		t.Error("Run returns no error, although the program was killed")
	}
	serverstest.Gone(t, []int{pid}, nil)
}

// awaitPID waits until printPID has written the file, and returns the PID.
func awaitPID(t *testing.T, file string) (pid int) {
	t.Helper()
	var text []byte
	serverstest.Eventually(t, "the program has written its PID", func() bool {
		var err error
		text, err = os.ReadFile(file)
		return err == nil
	})
	_, err := fmt.Sscan(string(text), &pid)
	must.Succeed(t, err)
	return pid
}
