package locks_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// setSequence makes the server number the next sequential child of a node with next. It restarts the server with a
// changed snapshot, which must have been written without a digest.
func setSequence(t *testing.T, server *servers.ZooKeeper, node string, next int32) {
	t.Helper()
	if err := server.Restart(t.Context()); err != nil { // writes a snapshot when it starts
		t.Fatal(err)
	}
	server.Kill()
	names, err := filepath.Glob(filepath.Join(server.Data, "version-2", "snapshot.*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the server has written %d snapshots, %v, want one or more", len(names), err)
	}
	newest := slices.MaxFunc(names, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
	snapshot, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err = withCversion(snapshot, node, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(newest, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// withCversion changes the cversion of a node in a snapshot: the number that the server gives to its next sequential
// child.
func withCversion(snapshot []byte, node string, cversion int32) ([]byte, error) {
	// A node is its path, its data, the id of its ACL, four times, its version, and its cversion. A string is its
	// length and its bytes; a buffer that is nil has the length -1.
	name := append(binary.BigEndian.AppendUint32(nil, uint32(len(node))), node...)
	at := bytes.Index(snapshot, append(name, 0xff, 0xff, 0xff, 0xff))
	if at < 0 {
		return nil, errors.New("the node is not in the snapshot")
	}
	at += len(name) + 4 + 8 + 4*8 + 4
	binary.BigEndian.PutUint32(snapshot[at:], uint32(cversion))
	// The path "/" ends the nodes. The checksum of all that follows it, and another "/".
	end := []byte{0, 0, 0, 1, '/'}
	last := bytes.Index(snapshot[at:], end)
	if last < 0 {
		return nil, errors.New("the snapshot has no end")
	}
	snapshot = snapshot[:at+last+len(end)]
	snapshot = binary.BigEndian.AppendUint64(snapshot, uint64(adler32.Checksum(snapshot)))
	return append(snapshot, end...), nil
}

// From the end of the counter on, the server gives the greatest number to every node, and negative ones to some that
// are created at once.
func TestZooKeeperGrantsInOrderAfterTheCounterOverflowed(t *testing.T) {
	t.Parallel()
	skipUncut(t)
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{
		Relaxed: true, Java: []string{"-Dzookeeper.digest.enabled=false"},
	})
	observer := connectZooKeeper(t, server.Addr, time.Minute)
	for _, node := range []string{"/locks", "/locks/order"} {
		if _, err := observer.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	setSequence(t, server, "/locks/order", math.MaxInt32)
	lock := newZooKeeper(t, server.Addr, locks.Options{})
	// If the order were left to chance, it would be right once in 720 times.
	grantsInOrder(t, lock, []locks.Locker{lock, lock, lock, lock, lock},
		func(key string, length int) { awaitZKQueue(t, observer, key, length) })
}
