package messages

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"stock/internal/tcpproxy"
)

// StockKey is the key of an item's stock. All keys of the item have its hash slot.
func StockKey(item int64) string { return fmt.Sprintf("stock:{%d}", item) }

// LockKey is the key of the item's lock.
func (s Sale) LockKey() string { return fmt.Sprintf("%s%s:{%d}", s.KeyPrefix, s.Strategy.Name, s.Item) }

// argument is an argument of a command of Redis, as it is on the wire, with the end of the line before it.
func argument(text string) []byte {
	return []byte("\r\n$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n")
}

// Mentions returns a function that matches a command of Redis with an argument.
func Mentions(text string) func(tcpproxy.Message) bool {
	return func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(text)) }
}

// onlyKey reports whether a message is a script with one key.
func onlyKey(m tcpproxy.Message, key string) bool {
	return bytes.Contains(m.Data, append(argument("1"), argument(key)[2:]...))
}

// TouchesLock matches a command about the item's lock.
func (s Sale) TouchesLock(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte(s.LockKey()))
}

// ReleasesLock matches the command that releases the item's lock.
func (s Sale) ReleasesLock(m tcpproxy.Message) bool {
	command := bytes.ToLower(m.Data)
	return Mentions(s.LockKey())(m) && !s.renewsLock(m) &&
		slices.ContainsFunc([]string{"del", "srem", "evalsha", "eval"}, func(name string) bool {
			return bytes.Contains(command, argument(name))
		})
}

// renewsLock matches the command that starts the lease of the item's lock anew: a script with one key, and with the
// lease as an argument.
func (s Sale) renewsLock(m tcpproxy.Message) bool { return onlyKey(m, s.LockKey()) && s.hasLease(m) }

// PassesLock matches the script that makes another caller of the same process the holder. Its command has seven words:
// EVALSHA, the script, the number of keys, the key, two owners and the lease.
func (s Sale) PassesLock(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("*7\r\n")) && Mentions(s.LockKey())(m) && s.hasLease(m)
}

func (s Sale) hasLease(m tcpproxy.Message) bool {
	return Mentions(strconv.FormatInt(s.Lease.Milliseconds(), 10))(m)
}
