package topology

import (
	"strings"
	"testing"
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
