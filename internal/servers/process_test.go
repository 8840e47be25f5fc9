package servers_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestAFailedStartShowsTheLogOfTheServer(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	_, mysql := servers.StartMySQL(t.Context(), servers.MySQLOptions{Args: []string{"--no-such-option"}})
	_, redis := servers.StartRedis(t.Context(), servers.RedisOptions{Args: []string{"--no-such-option", "1"}})
	_, etcd := servers.StartEtcd(t.Context(), servers.EtcdOptions{Args: []string{"--no-such-option"}})
	_, nginx := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main: "no-such-option;\n", Ready: []string{"http://127.0.0.1:1"},
	})
	for _, err := range []error{mysql, redis, etcd, nginx} {
		if text := fmt.Sprint(err); !strings.Contains(text, "ended before it was ready") ||
			!strings.Contains(text, "no-such-option") {
			t.Errorf("the error is %v, want what the server logged before it ended", err)
		}
	}
}

func TestStopEndsASuspendedProcess(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	must.Succeed(t, server.Signal(syscall.SIGSTOP))
	must.Succeed(t, server.Process.Stop(t.Context()))
	if server.Err() == nil {
		t.Error("the process is still running")
	}
}

func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	var server *servers.Redis
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without unlocking it, so that the thread ends with the goroutine
		server, err = servers.StartRedis(t.Context(), servers.RedisOptions{})
	}()
	<-done
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, server)

	// The thread may end a little later than the goroutine. Meanwhile, more threads start and end.
	client := connect(t, &redis.Options{Addr: server.Addr, MaxRetries: -1})
	for range 100 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread()
		}()
		<-ended
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("redis has ended (%v): %v", server.Err(), err)
		}
	}
}
