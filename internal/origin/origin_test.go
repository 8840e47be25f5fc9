package origin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"stock/internal/origin"
)

func TestAServerHasTheNamesThatNoPageCanHave(t *testing.T) {
	t.Parallel()
	policy := origin.Policy{Names: []string{"stock.example.com"}}
	for host, known := range map[string]bool{
		"":                       true, // HTTP/1.0
		"localhost":              true,
		"localhost:9090":         true,
		"127.0.0.1:9001":         true,
		"10.1.2.3":               true,
		"[::1]:9090":             true,
		"[::1]":                  true,
		"[fe80::1%eth0]:9090":    true,
		"stock:9090":             true,
		"stock-stock-1:9090":     true,
		"stock.example.com":      true,
		"Stock.Example.com.:443": true,
		"evil.com":               false,
		"evil.com:9090":          false,
		"stock.example.com.evil": false,
		"127.0.0.1.evil.com":     false,
		"1.2.3":                  false,
		"localhost.evil.com":     false,
		"[::1].evil.com":         false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if err := policy.Check(r); known && err != nil || !known && !errors.Is(err, origin.ErrHost) {
			t.Errorf("%q: %v, want it known: %v", host, err, known)
		}
	}
}

func TestRequestsOfOtherPagesAreRefused(t *testing.T) {
	t.Parallel()
	const get, put = "GET", "PUT"
	for _, test := range []struct {
		method                   string
		site, mode, dest, origin string
		closed, linked           bool // whether it is taken, without and with Linked
	}{
		{get, "", "", "", "", true, true}, // a program
		{put, "", "", "", "", true, true},
		{get, "none", "navigate", "document", "", true, true}, // typed into the address bar
		{get, "same-origin", "cors", "empty", "", true, true},
		{put, "same-origin", "cors", "empty", "http://localhost:9090", true, true},
		{put, "", "", "", "http://localhost:9090", true, true},
		{get, "cross-site", "no-cors", "image", "", false, false},
		{get, "same-site", "no-cors", "script", "", false, false}, // localhost on another port
		{get, "cross-site", "navigate", "iframe", "", false, false},
		{get, "cross-site", "navigate", "document", "", false, true}, // a link
		{get, "", "", "", "http://localhost:3000", false, false},
		{get, "", "", "", "null", false, false},
		{put, "cross-site", "cors", "empty", "http://evil.com", false, false},
		{put, "cross-site", "navigate", "document", "http://evil.com", false, false}, // a form
		{put, "", "", "", "http://evil.com", false, false},
	} {
		r := httptest.NewRequest(test.method, "http://localhost:9090/", nil)
		for name, value := range map[string]string{
			"Sec-Fetch-Site": test.site, "Sec-Fetch-Mode": test.mode, "Sec-Fetch-Dest": test.dest, "Origin": test.origin,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		for _, linked := range []bool{false, true} {
			policy := origin.Policy{Linked: linked}
			taken := test.closed || linked && test.linked
			if err := policy.Check(r); taken && err != nil || !taken && !errors.Is(err, origin.ErrOrigin) {
				t.Errorf("%+v with links %v: %v", test, linked, err)
			}
		}
	}
}
