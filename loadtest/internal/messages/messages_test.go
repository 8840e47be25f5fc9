package messages

import (
	"slices"
	"testing"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
)

// The COMMIT of a transaction decides a sale if the transaction has changed the stock; a change outside one decides it.
func TestWhatDecidesASale(t *testing.T) {
	t.Parallel()
	const change = "UPDATE good_stock SET stock = stock - 1 WHERE goods_id = 5"
	for name, test := range map[string]struct {
		messages []string // the last one is the first that should decide the sale, or nothing does
		decides  bool
	}{
		"a transaction":                 {[]string{"START TRANSACTION", change, "COMMIT"}, true},
		"a change by itself":            {[]string{change}, true},
		"a transaction that only reads": {[]string{"START TRANSACTION", "SELECT stock FROM good_stock", "COMMIT"}, false},
		"one that is rolled back":       {[]string{"START TRANSACTION", change, "ROLLBACK", "COMMIT"}, false},
		"another item":                  {[]string{"UPDATE good_stock SET stock = 1 WHERE goods_id = 55"}, false},
	} {
		decides := Sale{Store: oracle.MySQL, Item: 5}.Decides()
		for i, text := range test.messages {
			last := i == len(test.messages)-1
			if got := decides(tcpproxy.Message{Conn: 1, Data: []byte(text)}); got != (last && test.decides) {
				t.Errorf("%s: %q decides the sale: %t", name, text, got)
			}
		}
	}
}

func TestWhatHappensToALock(t *testing.T) {
	t.Parallel()
	s := Sale{Strategy: load.Strategy{Name: "lock"}, Item: 5, KeyPrefix: "p:", Lease: 2 * time.Second}
	command := func(arguments ...string) tcpproxy.Message {
		data := []byte{'*', byte('0' + len(arguments))}
		for _, a := range arguments {
			data = append(slices.Clip(data), argument(a)...)
			data = data[:len(data)-2]
		}
		return tcpproxy.Message{Data: append(data, "\r\n"...)}
	}
	const key = "p:lock:{5}"
	release, renewal := command("del", key), command("evalsha", "f00", "1", key, "A", "2000")
	if !s.ReleasesLock(release) || s.ReleasesLock(renewal) || !s.TouchesLock(renewal) {
		t.Errorf("DEL releases the lock: %t; a renewal does: %t, and is about it: %t",
			s.ReleasesLock(release), s.ReleasesLock(renewal), s.TouchesLock(renewal))
	}
	pass := command("evalsha", "f00", "1", key, "A", "B", "2000")
	if !s.PassesLock(pass) || s.PassesLock(renewal) {
		t.Errorf("it passes the lock: %t; a renewal does: %t", s.PassesLock(pass), s.PassesLock(renewal))
	}
}
