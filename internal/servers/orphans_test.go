package servers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"stock/internal/servers"
)

// asParent, in the environment, makes the test binary a process that starts servers and waits to be killed.
const asParent = "STOCK_TEST_PARENT"

// child is what such a process prints about each server.
type child struct {
	Name string
	PID  int
	Addr string
	Dir  string
}

// parent starts one server of each kind, prints what it started, and waits until stdin ends.
func parent(ctx context.Context) error {
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
	if err := json.NewEncoder(os.Stdout).Encode([]child{
		{mysql.Name, mysql.PID, mysql.Addr, filepath.Dir(mysql.Log)},
		{redis.Name, redis.PID, redis.Addr, filepath.Dir(redis.Log)},
		{nginx.Name, nginx.PID, addr, filepath.Dir(nginx.Log)},
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
	cmd := osexec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"=1")
	cmd.Stderr = os.Stderr
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
		if len(group(t, c.PID)) == 0 {
			t.Errorf("%s does not run even before the parent is killed", c.Name)
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()

	for _, c := range children {
		eventually(t, c.Name+" has no process left", func() bool { return len(group(t, c.PID)) == 0 })
		// The kernel shows a process as ended a little before its last thread lets go of the port.
		eventually(t, c.Name+" has left its port", func() bool {
			conn, err := net.DialTimeout("tcp", c.Addr, time.Second)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
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

// group lists the processes of a process group that have not ended.
func group(t *testing.T, pgid int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended since it was listed
		}
		// After the name in parentheses, which may hold anything: state, parent, process group.
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		if fields[0] != "Z" && fields[2] == strconv.Itoa(pgid) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not within 20 s: %s", what)
			return
		}
	}
}
