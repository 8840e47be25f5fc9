package servers_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"stock/internal/must"
)

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
