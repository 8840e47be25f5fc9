// Package messages tells what the messages between a replica and its stores do: which of them read or write the stock
// of an item, make a sale durable, or are about the item's lock. It knows the statements, commands and keys of the
// service.
package messages

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// Sale is a sale of an item. It tells which messages between a replica and its stores belong to it, and what they do.
type Sale struct {
	Strategy  load.Strategy
	Store     string
	Item      int64
	KeyPrefix string        // of everything that the service keeps in Redis
	Lease     time.Duration // of the item's lock
}

// Step is a message of a sale.
type Step string

// The steps at which a sale can be held, in their order. Not every strategy has each of them.
const (
	Read   Step = "read"   // the reply to its read of the stock, which is held instead of the message
	Write  Step = "write"  // the message that changes the stock
	Commit Step = "commit" // the message that makes the change durable: a COMMIT, or the change itself
)

// Catch holds the next message of such a sale that a replica sends to the store, or the reply to it.
func (s Sale) Catch(at topology.Proxies, step Step) *tcpproxy.Caught {
	switch {
	case step == Read:
		return s.StoreProxy(at).CatchReply(s.ReadsStock)
	case step == Write:
		return s.StoreProxy(at).Catch(s.WritesStock)
	case s.Strategy.WriteThrough: // MySQL has the last word
		return at.MySQL.Catch(s.Decides())
	}
	return s.StoreProxy(at).Catch(s.Decides())
}

// Describe says what is held at a step, given the message and a word such as "its".
func Describe(whose string, step Step, message []byte) string {
	switch {
	case step == Read:
		return fmt.Sprintf("the reply to %s read", whose)
	case bytes.HasSuffix(message, commit) && len(message) < len(commit)+8: // with the header of the packet
		return whose + " COMMIT"
	}
	return fmt.Sprintf("%s write of %d bytes", whose, len(message))
}

var commit = []byte("COMMIT")

// StoreProxy is the proxy between a replica and the store.
func (s Sale) StoreProxy(at topology.Proxies) *tcpproxy.Proxy {
	if s.Store == oracle.Redis {
		return at.Redis
	}
	return at.MySQL
}

// MentionsItem matches a message in which the item's number occurs.
func (s Sale) MentionsItem(m tcpproxy.Message) bool {
	id := strconv.FormatInt(s.Item, 10)
	for number := range bytes.FieldsFuncSeq(m.Data, func(r rune) bool { return r < '0' || r > '9' }) {
		if string(number) == id {
			return true
		}
	}
	return false
}

// ReadsStock matches the message that reads the item's stock, and does not change it.
func (s Sale) ReadsStock(m tcpproxy.Message) bool {
	switch {
	case !s.MentionsItem(m) || s.WritesStock(m):
		return false
	case s.Store == oracle.Redis:
		return bytes.Contains(m.Data, []byte(StockKey(s.Item))) && redisRead.Match(m.Data)
	}
	return bytes.Contains(m.Data, []byte("SELECT")) && bytes.Contains(m.Data, []byte("FROM good_"))
}

// WritesStock matches the message that changes the item's stock.
func (s Sale) WritesStock(m tcpproxy.Message) bool {
	if !s.MentionsItem(m) {
		return false
	}
	switch inMySQL := bytes.Contains(m.Data, []byte("SET stock = ")); {
	case s.Store == oracle.Slots && bytes.Contains(m.Data, []byte("INSERT INTO good_slot ")): // it shares units out anew
		return true
	case s.Store == oracle.Units:
		return bytes.Contains(m.Data, []byte("DELETE good_unit "))
	case s.Store == oracle.MySQL, s.Store == oracle.Slots, inMySQL && s.Strategy.WriteThrough:
		return inMySQL
	}
	return bytes.Contains(m.Data, []byte(StockKey(s.Item))) && redisWrite.Match(m.Data)
}

// The commands by which strategies read a stock in Redis (MGET with a key), and by which they change it. A
// script that Redis does not know is sent in EVAL.
var (
	redisRead  = regexp.MustCompile(`(?i)\r\nm?get\r\n`)
	redisWrite = regexp.MustCompile(`(?i)\r\n(?:set|decrby|eval|evalsha)\r\n`)
)

// Confirms matches the message that confirms a reservation. It names no item, but no other cell of a round confirms
// one.
func Confirms(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte("SET state = 'confirmed'"))
}

// Decides returns a function that matches the message by which a sale of the item is made durable: the COMMIT of a
// transaction that has changed its stock, or the change itself if it is in none.
func (s Sale) Decides() func(tcpproxy.Message) bool {
	changed := map[int]bool{} // by the number of a connection with a transaction: whether that has changed the stock
	return func(m tcpproxy.Message) bool {
		did, inTx := changed[m.Conn]
		switch {
		case bytes.HasSuffix(m.Data, []byte("START TRANSACTION")):
			changed[m.Conn] = false
		case bytes.HasSuffix(m.Data, commit):
			delete(changed, m.Conn)
			return did || s.WritesStock(m) // a strategy may send the whole transaction in one message
		case bytes.HasSuffix(m.Data, []byte("ROLLBACK")):
			delete(changed, m.Conn)
		case s.WritesStock(m):
			if !inTx {
				return true
			}
			changed[m.Conn] = true
		}
		return false
	}
}

// DecidesBatch returns a function that matches the message that makes a batch durable. escrow first tries the row of
// its replica, which has one unit at most, and so too few. That transaction is one message; the one that follows has a
// message for its COMMIT.
func (s Sale) DecidesBatch() func(tcpproxy.Message) bool {
	decides := s.Decides()
	if s.Store != oracle.Slots {
		return decides
	}
	return func(m tcpproxy.Message) bool { return decides(m) && bytes.HasSuffix(m.Data, []byte("\x03COMMIT")) }
}

// LocksRow matches the message that reads a row of the item and locks it.
func (s Sale) LocksRow(m tcpproxy.Message) bool {
	return s.MentionsItem(m) && bytes.Contains(m.Data, []byte("FOR UPDATE"))
}

// IsRequest matches a request for the item on its way from nginx to a replica.
func (s Sale) IsRequest(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("POST ")) && s.MentionsItem(m)
}

// WritesStream matches the message that writes sales of a stream to MySQL.
func WritesStream(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte("INSERT INTO stream_sale"))
}
