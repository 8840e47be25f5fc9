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

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestZooKeeperKeepsAcknowledgedWritesWhenKilled(t *testing.T) {
	t.Parallel()
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{})
	before := connectZooKeeper(t, server.Addr)
	if _, err := before.Create("/stock", []byte("6000"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	pid := server.PID
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(server.Version, "ZooKeeper 3.") {
		t.Errorf("the version is %q, want ZooKeeper 3.x", server.Version)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	gone(t, server.Process)
}

// grantedTimeout opens a session and returns the timeout that the server grants, which the client library does not
// report.
func grantedTimeout(t *testing.T, addr string, asked time.Duration) time.Duration {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := binary.Write(conn, binary.BigEndian, request); err != nil {
		t.Fatal(err)
	}
	var reply struct{ Length, Version, Timeout int32 }
	if err := binary.Read(conn, binary.BigEndian, &reply); err != nil {
		t.Fatal(err)
	}
	return time.Duration(reply.Timeout) * time.Millisecond
}

func connectZooKeeper(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
