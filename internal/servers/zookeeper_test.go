package servers_test

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestZooKeeperKeepsAcknowledgedWritesWhenKilled(t *testing.T) {
	t.Parallel()
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{})
	before := connectZooKeeper(t, server.Addr)
	_, err := before.Create("/stock", []byte("6000"), 0, zk.WorldACL(zk.PermAll))
	must.Succeed(t, err)
	pid := server.PID
	must.Succeed(t, server.Restart(t.Context()))
	if server.PID == pid {
		t.Error("the restarted server is the same process")
	}
	got, _, err := connectZooKeeper(t, server.Addr).Get("/stock")
	if err != nil || string(got) != "6000" {
		t.Errorf("after the restart, the node has %q, %v, want 6000", got, err)
	}
}

func TestZooKeeperGrantsSessionsFromOneSecondToOneMinute(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: time.Second,
		time.Second:            time.Second,
		time.Minute:            time.Minute,
		time.Hour:              time.Minute,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			t.Parallel()
			if got := grantedTimeout(t, shared.ZooKeeper(t), asked); got != want {
				t.Errorf("the session lasts %v, want %v", got, want)
			}
		})
	}
}

func TestZooKeeperStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	server, err := servers.StartZooKeeper(t.Context(), servers.ZooKeeperOptions{Relaxed: true})
	must.Succeed(t, err)
	if !strings.HasPrefix(server.Version, "ZooKeeper 3.") {
		t.Errorf("the version is %q, want ZooKeeper 3.x", server.Version)
	}
	must.Succeed(t, server.Stop(t.Context()))
	gone(t, server.Process)
}

// grantedTimeout opens a session and returns the timeout that the server grants, which the client library does not
// report.
func grantedTimeout(t *testing.T, addr string, asked time.Duration) time.Duration {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must.Succeed(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	request := struct {
		Length, Version int32
		LastZxid        int64
		Timeout         int32 // in milliseconds
		Session         int64
		PasswordLength  int32
		Password        [16]byte
	}{Length: 44, Timeout: int32(asked.Milliseconds()), PasswordLength: 16}
	must.Succeed(t, binary.Write(conn, binary.BigEndian, request))
	var reply struct{ Length, Version, Timeout int32 }
	must.Succeed(t, binary.Read(conn, binary.BigEndian, &reply))
	return time.Duration(reply.Timeout) * time.Millisecond
}

func connectZooKeeper(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}
