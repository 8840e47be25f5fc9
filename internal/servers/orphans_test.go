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
	"runtime"
	"testing"
	"time"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// asProcess, in the environment, names the part that the test binary plays as a process of its own.
const asProcess = "STOCK_TEST_PROCESS"

var parts = map[string]func(context.Context) error{
	"starts servers":    startServers,
	"runs a program":    runProgram,
	"makes and removes": makeAndRemove,
}

// process prepares the test binary in one of its parts.
func process(t *testing.T, part string, env ...string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), asProcess+"="+part), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// child is what startServers prints about each server.
type child struct {
	Name string
	PID  int
	Addr string
	Dir  string
}

// startServers starts one server of each kind, prints what it started, and waits until stdin ends.
func startServers(ctx context.Context) error {
	mysql, err := servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true})
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
	nginx, err := servers.StartNginx(ctx, servers.NginxOptions{
		HTTP:  fmt.Sprintf("server { listen %s; return 204; }\n", addr),
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
	if err := json.NewEncoder(os.Stdout).Encode([]child{
		{mysql.Name, mysql.PID, mysql.Addr, filepath.Dir(mysql.Log)},
		{redis.Name, redis.PID, redis.Addr, filepath.Dir(redis.Log)},
		{nginx.Name, nginx.PID, addr, filepath.Dir(nginx.Log)},
		{etcd.Name, etcd.PID, etcd.Addr, filepath.Dir(etcd.Log)},
		{zookeeper.Name, zookeeper.PID, zookeeper.Addr, filepath.Dir(zookeeper.Log)},
	}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestKillingTheParentLeavesNoProcessNoPortAndNoDirectory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent died")
	}
	t.Parallel()
	cmd := process(t, "starts servers")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []child
	if err := json.NewDecoder(stdout).Decode(&children); err != nil {
		t.Fatal("the parent told of no servers: ", errors.Join(err, cmd.Wait()))
	}
	for _, c := range children {
		if len(serverstest.Running(t, c.PID)) == 0 {
			t.Errorf("%s does not run even before the parent is killed", c.Name)
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()

	for _, c := range children {
		serverstest.Gone(t, []int{c.PID}, []string{c.Addr})
	}
	dir, err := servers.NewDir("next")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Remove()
	for _, c := range children {
		if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of %s outlives the next start: %v", c.Name, err)
		}
	}
}

// printPID is a program that prints its number to the file $0 and waits.
const printPID = `echo $$ >"$0.new" && mv "$0.new" "$0" && exec sleep 600`

// pidFile is the file, in the environment of runProgram, that its program prints its number to.
const pidFile = "STOCK_TEST_PID_FILE"

func runProgram(ctx context.Context) error {
	_, err := servers.Run(ctx, servers.Command{Name: "sh", Path: "/bin/sh", Args: []string{"-c", printPID, os.Getenv(pidFile)}})
	return err
}

func TestKillingTheParentEndsAProgramItRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent died")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := process(t, "runs a program", pidFile+"="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(t, file)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	serverstest.Gone(t, []int{pid}, nil)
}

func TestRunEndsAProgramAndThoseItStartedWithItsContext(t *testing.T) {
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
		t.Error("a program that was killed gives no error")
	}
	serverstest.Gone(t, []int{pid}, nil)
}

// awaitPID waits for the number that printPID prints.
func awaitPID(t *testing.T, file string) (pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if err == nil {
			if _, err := fmt.Sscan(string(text), &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
		if time.Now().After(deadline) {
			t.Fatalf("the program did not start: %v", err)
		}
	}
}
