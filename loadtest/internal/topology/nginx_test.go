package topology

import (
	"strings"
	"testing"

	"stock/internal/must"
	"stock/nginx"
)

func TestListenAddr(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given  string
		offset int
		want   string // empty for a free port
	}{
		{"127.0.0.1:9001", 0, "127.0.0.1:9001"},
		{"127.0.0.1:9001", 1, "127.0.0.1:9002"},
		{"127.0.0.1:0", 1, ""},
		{"", 1, ""},
	} {
		got, err := listenAddr(test.given, test.offset)
		if err != nil || test.want != "" && got != test.want || strings.HasSuffix(got, ":0") {
			t.Errorf("listenAddr(%q, %d) = %q, %v, want %q", test.given, test.offset, got, err, test.want)
		}
	}
	for _, bad := range []string{"nonsense", "127.0.0.1:http"} {
		if got, err := listenAddr(bad, 0); err == nil {
			t.Errorf("listenAddr(%q) = %q, want an error", bad, got)
		}
	}
}

func TestNginxWaitsLongerThanTheReplicas(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                     "17s",
		"--lease=2s --request-timeout=500ms":   "17s",
		"--lease=2s --request-timeout=1h0m0s":  "3602s",
		"--request-timeout=1h --mysql-idle=2h": "3602s",
	} {
		timeout, err := Options{ReplicaArgs: strings.Fields(args)}.requestTimeout()
		must.Succeed(t, err)
		site := nginx.WithRequestTimeout(nginx.Render("stock", "8000", []string{"replica-1:8080"}), timeout)
		for _, setting := range []string{"proxy_send_timeout ", "proxy_read_timeout "} {
			if line := "\n    " + setting + want + ";\n"; !strings.Contains(site, line) {
				t.Errorf("%q: the configuration does not have %q", args, line)
			}
		}
	}
	if timeout, err := (Options{ReplicaArgs: []string{"--request-timeout=long"}}).requestTimeout(); err == nil {
		t.Errorf("a timeout that is no duration is %v, want an error", timeout)
	}
}
