package fault

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// The machine may be so busy that no member answers within the second that it is given.
func TestAnEtcdLeaderIsKilledAndItsSuccessorFoundAlthoughMembersDoNotAlwaysAnswer(t *testing.T) {
	t.Parallel()
	d := &Deployment{}
	t.Cleanup(func() {
		if err := d.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := threeEtcd(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	m := d.etcd
	for _, member := range m.cluster.Members {
		member.Addr = failsEveryOther(t, member.Addr)
	}
	if err := m.killLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := m.status.Term
	if m.leader.Err() == nil || killed == 0 {
		t.Errorf("%s of term %d was not killed", m.leader.Name, killed)
	}
	if leader, term, err := m.awaitElection(t.Context()); err != nil || leader == m.leader || term <= killed {
		t.Errorf("the successor leads in term %d, %v; want one after term %d", term, err, killed)
	}
}

// failsEveryOther returns the address of a proxy that answers every other request itself, from the first on.
func failsEveryOther(t *testing.T, address string) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.ErrorLog = log.New(io.Discard, "", 0) // a member that was killed does not answer
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%2 == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
