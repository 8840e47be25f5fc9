package fault

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// Sale is a sale of an item. It tells which messages between a replica and its stores belong to it, and what they do.
type Sale struct {
	Strategy scenario.Strategy // or the practice
	Store    string
	Item     int64
}

// Step is a message of a sale.
type Step string

// The steps at which a sale can be held, in their order. Not every strategy has each of them.
const (
	Read   Step = "read"   // the reply to its read of the stock, which is held instead of the message
	Write  Step = "write"  // the message that changes the stock
	Commit Step = "commit" // the message that makes the change durable: a COMMIT, or the change itself
)

// Steps lists the steps.
var Steps = []Step{Read, Write, Commit}

// Catch holds the next message of such a sale that a replica sends to the store, or the reply to it.
func (s Sale) Catch(at topology.Proxies, step Step) *tcpproxy.Caught {
	switch {
	case step == Read:
		return s.storeProxy(at).CatchReply(s.readsStock)
	case step == Write:
		return s.storeProxy(at).Catch(s.writesStock)
	case s.Strategy.WriteThrough: // MySQL has the last word
		return at.MySQL.Catch(s.decides())
	}
	return s.storeProxy(at).Catch(s.decides())
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

// storeProxy is the proxy between a replica and the store.
func (s Sale) storeProxy(at topology.Proxies) *tcpproxy.Proxy {
	if s.Store == oracle.Redis {
		return at.Redis
	}
	return at.MySQL
}

// mentionsItem matches a message in which the item's number occurs.
func (s Sale) mentionsItem(m tcpproxy.Message) bool {
	id := strconv.FormatInt(s.Item, 10)
	for number := range bytes.FieldsFuncSeq(m.Data, func(r rune) bool { return r < '0' || r > '9' }) {
		if string(number) == id {
			return true
		}
	}
	return false
}

// readsStock matches the message that reads the item's stock, and does not change it.
func (s Sale) readsStock(m tcpproxy.Message) bool {
	switch {
	case !s.mentionsItem(m) || s.writesStock(m):
		return false
	case s.Store == oracle.Redis:
		return bytes.Contains(m.Data, []byte(stockKey(s.Item))) && redisRead.Match(m.Data)
	}
	return bytes.Contains(m.Data, []byte("SELECT")) && bytes.Contains(m.Data, []byte("FROM good_"))
}

// writesStock matches the message that changes the item's stock.
func (s Sale) writesStock(m tcpproxy.Message) bool {
	if !s.mentionsItem(m) {
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
	return bytes.Contains(m.Data, []byte(stockKey(s.Item))) && redisWrite.Match(m.Data)
}

// The commands by which strategies read a stock in Redis (MGET with a key), and by which they change it. Some mutants
// send EVAL instead of EVALSHA.
var (
	redisRead  = regexp.MustCompile(`(?i)\r\nm?get\r\n`)
	redisWrite = regexp.MustCompile(`(?i)\r\n(?:set|decrby|eval|evalsha)\r\n`)
)

// confirms matches the message that confirms a reservation. It names no item, but no other cell of a round confirms
// one.
func confirms(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte("SET state = 'confirmed'"))
}

// decides returns a function that matches the message by which a sale of the item is made durable: the COMMIT of a
// transaction that has changed its stock, or the change itself if it is in none.
func (s Sale) decides() func(tcpproxy.Message) bool {
	changed := map[int]bool{} // by the number of a connection with a transaction: whether that has changed the stock
	return func(m tcpproxy.Message) bool {
		did, inTx := changed[m.Conn]
		switch {
		case bytes.HasSuffix(m.Data, []byte("START TRANSACTION")):
			changed[m.Conn] = false
		case bytes.HasSuffix(m.Data, commit):
			delete(changed, m.Conn)
			return did || s.writesStock(m) // a strategy may send the whole transaction in one message
		case bytes.HasSuffix(m.Data, []byte("ROLLBACK")):
			delete(changed, m.Conn)
		case s.writesStock(m):
			if !inTx {
				return true
			}
			changed[m.Conn] = true
		}
		return false
	}
}
