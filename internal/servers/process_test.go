package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestAFailedStartShowsTheLogOfTheServer(t *testing.T) {
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

// The first start of TiDB may take longer than a minute.
func TestAProcessHasAMinuteToBecomeReadyUnlessItsContextSaysMore(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]time.Duration{0: time.Minute, 2 * time.Minute: 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			began, failure := time.Now(), errors.New("not yet")
			err := new(servers.Process).Await(ctx, func(context.Context) error { return failure })
			if waited := time.Since(began); waited != want || !errors.Is(err, failure) {
				t.Errorf("with a limit of %v, it gave up after %v: %v", limit, waited, err)
			}
		})
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

func TestSignalFailsWhenTheProcessHasEnded(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	server.Kill()
	if err := server.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the error is %v, want %v", err, os.ErrProcessDone)
	}
	if server.Err() == nil || server.Err().Error() != "signal: killed" {
		t.Errorf("the process ended with %v, want signal: killed", server.Err())
	}
}
