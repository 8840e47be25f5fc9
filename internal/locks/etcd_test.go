package locks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

func connectEtcd(t testing.TB, addr string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func newEtcd(t testing.TB, addr string, o locks.Options) *locks.Etcd {
	lock := locks.NewEtcd(connectEtcd(t, addr), o)
	t.Cleanup(func() { lock.Close() })
	return lock
}

// etcdQueue lists the keys of the holder and the waiters of a lock, oldest first.
func etcdQueue(t testing.TB, observer *clientv3.Client, key string) (keys []string, sessions []clientv3.LeaseID) {
	t.Helper()
	found, err := observer.Get(context.WithoutCancel(t.Context()), "locks/"+key+"/",
		clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	must.Succeed(t, err)
	for _, kv := range found.Kvs {
		keys, sessions = append(keys, string(kv.Key)), append(sessions, clientv3.LeaseID(kv.Lease))
	}
	return keys, sessions
}

// watchers returns the number of watches on the server.
func watchers(t testing.TB, addr string) (n int) {
	t.Helper()
	response, err := http.Get("http://" + addr + "/metrics")
	must.Succeed(t, err)
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	_, value, _ := strings.Cut(string(metrics), "\netcd_debugging_mvcc_watcher_total ")
	if _, err := fmt.Sscan(value, &n); err != nil {
		t.Fatalf("the metric of watches: %v", err)
	}
	return n
}

func TestEtcdHolderNoticesARevokedSessionAndOpensAnother(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "revoked"
	observer := connectEtcd(t, addr)
	lock := newEtcd(t, addr, locks.Options{Renew: 50 * time.Millisecond})
	lost, other := mustLock(t, lock, key), mustLock(t, lock, key+" too")
	_, sessions := etcdQueue(t, observer, key)
	_, err := observer.Revoke(t.Context(), sessions[0])
	must.Succeed(t, err)
	for _, lease := range []*locks.Lease{lost, other} {
		awaitLoss(t, lease)
		wantLeaseLost(t, lease.Unlock())
	}
	again := mustLock(t, lock, key)
	if again.Token() <= lost.Token() {
		t.Errorf("token %d after %d, want a greater one", again.Token(), lost.Token())
	}
	mustUnlock(t, again)
}

// A waiter's key that is created late would block the queue until its session ends.
func TestAnEtcdWaiterThatGaveUpIsNotQueuedByALateRequest(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "late"
	observer := connectEtcd(t, addr)
	lock := newEtcd(t, addr, locks.Options{Lease: 2 * time.Second})
	if err := lock.EnqueueLate(t.Context(), key); err == nil {
		t.Error("a waiter that had given up was queued")
	}
	if keys, _ := etcdQueue(t, observer, key); len(keys) != 0 {
		t.Errorf("the queue is %v, want it empty", keys)
	}
	serverstest.Eventually(t, "the mark is removed after the lease", func() bool {
		marks, err := observer.Get(t.Context(), "withdrawn/locks/"+locks.NodeName(key)+"/", clientv3.WithPrefix())
		return err == nil && marks.Count == 0
	})
}

// A watch that begins anew after a lost connection may ask for history that is gone.
func TestAnEtcdWaiterOutlivesACompaction(t *testing.T) {
	t.Parallel()
	server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true})
	observer := connectEtcd(t, server.Addr)
	proxy := tcpproxy.New(t, server.Addr)
	held := mustLock(t, newEtcd(t, server.Addr, locks.Options{}), "compacted")
	granted, failed := startLock(t.Context(), newEtcd(t, proxy.Addr(), locks.Options{}), "compacted")
	serverstest.Eventually(t, "the waiter watches the holder", func() bool { return watchers(t, server.Addr) == 1 })
	for range 2 {
		_, err := observer.Put(t.Context(), "other", "")
		must.Succeed(t, err)
	}
	now, err := observer.Get(t.Context(), "other")
	must.Succeed(t, err)
	_, err = observer.Compact(t.Context(), now.Header.Revision)
	must.Succeed(t, err)
	proxy.Break()
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
}
