package nginx_test

import (
	"net/http"
	"testing"

	"stock/nginx"
)

// Otherwise the service could not refuse a key in a header with the wrong name, and would sell without it.
func TestAHeaderWithAnUnderscoreReachesTheReplica(t *testing.T) {
	t.Parallel()
	received := make(chan http.Header, 1)
	_, address := start(t, nginx.Main(), startReplica(t, func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Header
	}).address())
	ask(t, address, "GET / HTTP/1.1\r\nHost: a\r\nIdempotency_Key: k\r\n\r\n")
	if got := (<-received)["Idempotency_key"]; len(got) != 1 || got[0] != "k" {
		t.Errorf("the replica got %q, want the key", got)
	}
}

// Some servers refuse a Host that is no host name, such as one with an underscore.
func TestReplicasGetAHostName(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	_, address := start(t, nginx.Main(), startReplica(t, func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Host
	}).address())
	ask(t, address, "GET / HTTP/1.1\r\nHost: my_shop\r\n\r\n")
	if host := <-received; host != "stock" {
		t.Errorf("the replica got Host: %s, want the name of the upstream", host)
	}
}
