// Package origin tells the requests of programs, and of a server's own pages, from those that other pages make a
// browser send. It is for servers without a login.
package origin

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Policy says whose requests a server takes.
type Policy struct {
	// Names are further names of the server. It always has those that only its own network can give to it, so that no
	// page can have a name of its own lead there (DNS rebinding): IP addresses, localhost and names without a dot.
	Names []string
	// Linked lets other pages link to the server. They can neither embed nor read what they link to.
	Linked bool
}

var (
	// ErrHost means that the Host header has a name that is not the server's.
	ErrHost = errors.New("the request is for another host")
	// ErrOrigin means that another page made the browser send the request.
	ErrOrigin = errors.New("another page sent the request")
)

// Check returns ErrHost, ErrOrigin or nil.
func (p *Policy) Check(r *http.Request) error {
	if !p.knows(r.Host) {
		return ErrHost
	}
	var writes http.CrossOriginProtection
	if writes.Check(r) != nil || p.elsewhere(r) {
		return ErrOrigin
	}
	return nil
}

// knows reports whether a Host header may be that of the server. A browser always sends one.
func (p *Policy) knows(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	return slices.ContainsFunc(p.Names, func(known string) bool { return strings.EqualFold(known, name) })
}

// elsewhere reports whether another page makes a browser send a GET.
func (p *Policy) elsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		_, own, _ := strings.Cut(r.Header.Get("Origin"), "://")
		return r.Header.Get("Origin") != "" && own != r.Host
	}
	return !p.Linked || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}
