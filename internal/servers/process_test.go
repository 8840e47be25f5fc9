package servers_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestStopEndsAProcessThatIsStopped(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	gone(t, server.Process, server.Addr)
}

func TestAChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	var server *servers.Redis
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		server, err = servers.StartRedis(t.Context(), servers.RedisOptions{})
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop(t.Context()) })

	// The thread may end a little later than the goroutine: more threads come and go meanwhile.
	client := connect(t, &redis.Options{Addr: server.Addr, MaxRetries: -1})
	for range 100 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread()
		}()
		<-ended
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("redis is gone (%v): %v", server.Err(), err)
		}
	}
}

func TestSignallingAnEndedProcessIsAnError(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	server.Kill()
	if err := server.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the error is %v, want %v", err, os.ErrProcessDone)
	}
	if server.Err() == nil || server.Err().Error() != "signal: killed" {
		t.Errorf("the process ended by %v, want signal: killed", server.Err())
	}
}
