package lab

import (
	"io"
	"net"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestALabEndsWithoutAnErrorIfItsMySQLWasRestarted(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	reset := make(chan func(), 1)
	go func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		mysql, err := net.Dial("tcp", server.Addr)
		if err != nil {
			return
		}
		defer mysql.Close()
		reset <- func() {
			// The host answers as it does for a connection of a process that is gone.
			_ = client.(*net.TCPConn).SetLinger(0)
			client.Close()
		}
		go func() { _, _ = io.Copy(mysql, client) }()
		_, _ = io.Copy(client, mysql)
	}()
	l, err := Attach(t.Context(), Place{
		URL: "http://127.0.0.1:1", MySQLDSN: strings.Replace(dsn, server.Addr, listener.Addr().String(), 1),
	})
	must.Succeed(t, err)
	(<-reset)()
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v, want no error", err)
	}
}

func TestSharesHost(t *testing.T) {
	t.Parallel()
	for address, shares := range map[string]bool{
		"http://127.0.0.1:8000": true, "http://localhost:8000": true, "http://[::1]:8000": true,
		"http://172.18.0.5:8000": true, "http://192.0.2.1": false, "http://stock.example": false,
	} {
		if got := sharesHost(address); got != shares {
			t.Errorf("%s: %v, want %v", address, got, shares)
		}
	}
}
