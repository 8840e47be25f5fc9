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

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
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
