package fault

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// message is one that a proxy holds as soon as it arrives. It goes on when it is released, or when the story has ended.
type message struct {
	*tcpproxy.Caught
	stage *Stage
}

// catch holds the first message that matches.
func (s *Stage) catch(at *tcpproxy.Proxy, match func(tcpproxy.Message) bool) message {
	m := message{at.Catch(match), s}
	s.atEnd = append(s.atEnd, m.Release)
	return m
}

// arrive waits until the message is held.
func (m message) arrive() { m.stage.await(m.Arrived()) }

// land lets the message go on, and waits until it is answered.
func (m message) land() {
	m.Release()
	m.stage.await(m.Answered())
}

// caught waits until a message of the request is held. The request must not be answered before that.
func (p *pending) caught(m message) {
	select {
	case <-m.Arrived():
	case <-p.done:
		p.stage.failf("client %s was answered before its message was seen on the wire: %s", p.client, p.wait().Outcome)
	case <-p.stage.ctx.Done():
		p.stage.check(p.stage.ctx.Err())
	}
}

// proxyTo starts a proxy of the story's own.
func (s *Stage) proxyTo(address string) *tcpproxy.Proxy {
	proxy, err := tcpproxy.Start(address)
	s.check(err)
	s.atEnd = append(s.atEnd, proxy.Close)
	return proxy
}

// seen returns a channel that is closed when a message that matches arrives at one of the proxies. It holds none.
func (s *Stage) seen(match func(tcpproxy.Message) bool, at ...*tcpproxy.Proxy) <-chan struct{} {
	seen := make(chan struct{})
	var once sync.Once
	for _, proxy := range at {
		m := proxy.Catch(match)
		s.background.Go(func() {
			defer m.Release()
			select {
			case <-m.Arrived():
				once.Do(func() { close(seen) })
			case <-s.ctx.Done():
			}
		})
	}
	return seen
}

// storeProxy is the proxy between a replica and the store.
func (s *Stage) storeProxy(r *topology.Isolated) *tcpproxy.Proxy {
	if s.Store == oracle.Redis {
		return r.Redis
	}
	return r.MySQL
}

// mentionsItem matches a message about the item.
func (s *Stage) mentionsItem(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, strconv.AppendInt(nil, s.Item, 10))
}

// isRequest matches a request for the item on its way from nginx to a replica.
func (s *Stage) isRequest(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("POST ")) && s.mentionsItem(m)
}

// locksItem matches the message that locks the story's item.
func (s *Stage) locksItem(m tcpproxy.Message) bool {
	if !strings.HasPrefix(s.Strategy.Name, "lock-") {
		return s.mentionsItem(m)
	}
	// It may look the item up in MySQL first.
	return s.mentionsItem(m) && (bytes.Contains(m.Data, []byte("GET_LOCK")) || !bytes.Contains(m.Data, []byte("SELECT")))
}

// writesStock matches the message that changes the item's stock.
func (s *Stage) writesStock(m tcpproxy.Message) bool {
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

// redisWrite matches the commands by which strategies change a stock.
var redisWrite = regexp.MustCompile(`(?i)\r\n(?:set|decrby|evalsha)\r\n`)

// writesStream matches the message that writes sales of a stream to MySQL.
func writesStream(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte("INSERT INTO stream_sale"))
}

// completes returns a function that matches the message that completes a sale of the item. That is the one of decides,
// unless the strategy takes reservations: its COMMIT only holds the units, and if the client has gone before they are
// confirmed, they are given back. The confirmation names no item, but no other cell of a round confirms anything.
func (s *Stage) completes() func(tcpproxy.Message) bool {
	if len(s.Strategy.Reservations) > 0 {
		return func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte("SET state = 'confirmed'")) }
	}
	return s.decides()
}

// decides returns a function that matches the message by which a sale of the item is made durable: the COMMIT of a
// transaction that has changed its stock, or the change itself if it is in none.
func (s *Stage) decides() func(tcpproxy.Message) bool {
	changed := map[int]bool{} // by the number of a connection with a transaction: whether that has changed the stock
	return func(m tcpproxy.Message) bool {
		did, inTx := changed[m.Conn]
		switch {
		case bytes.HasSuffix(m.Data, []byte("START TRANSACTION")):
			changed[m.Conn] = false
		case bytes.HasSuffix(m.Data, []byte("COMMIT")):
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

// argument is an argument of a command of Redis, as it is on the wire, with the end of the line before it.
func argument(text string) []byte {
	return []byte("\r\n$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n")
}

// mentions returns a function that matches a command of Redis with an argument.
func mentions(text string) func(tcpproxy.Message) bool {
	return func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(text)) }
}

// onlyKey reports whether a message is a script with one key.
func onlyKey(m tcpproxy.Message, key string) bool {
	return bytes.Contains(m.Data, append(argument("1"), argument(key)[2:]...))
}

// releasesLock matches the command that releases the item's lock.
func (s *Stage) releasesLock(m tcpproxy.Message) bool {
	command := bytes.ToLower(m.Data)
	return mentions(s.lockKey())(m) && !s.renewsLock(m) &&
		slices.ContainsFunc([]string{"del", "srem", "evalsha", "eval"}, func(name string) bool {
			return bytes.Contains(command, argument(name))
		})
}

// renewsLock matches the command that starts the lease of the item's lock anew: a script with one key, and with the
// lease as an argument.
func (s *Stage) renewsLock(m tcpproxy.Message) bool {
	return onlyKey(m, s.lockKey()) && mentions(milliseconds(lease))(m)
}

// passesLock matches the script that makes another caller of the same process the holder. Its command has seven words:
// EVALSHA, the script, the number of keys, the key, two owners and the lease.
func (s *Stage) passesLock(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("*7\r\n")) && mentions(s.lockKey())(m) && mentions(milliseconds(longLease))(m)
}

// removesEntry matches the script that deletes entries from the item's stream: no other has the stream as its only key.
func (s *Stage) removesEntry(m tcpproxy.Message) bool {
	return onlyKey(m, s.streamKey()) && bytes.Contains(bytes.ToLower(m.Data), argument("evalsha"))
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// holdWrite has A read the stock, and holds A's write on the wire. A waits no longer than timeout for its answer; 0
// means clientTimeout.
func (s *Stage) holdWrite(timeout time.Duration) lateHolder {
	write := s.catch(s.storeProxy(s.Victim), s.writesStock)
	a := lateHolder{s.start(order{client: "A", at: s.Victim, timeout: timeout}), write}
	a.caught(write)
	s.Stepf("A has read the stock, and the proxy between the victim and %s holds its write of %d bytes", s.Store,
		write.Bytes())
	return a
}

// lateHolder is a client whose write is on its way to the store.
type lateHolder struct {
	*pending
	write message
}

// land lets the write go on, and waits until A is answered.
func (a lateHolder) land() {
	a.write.land()
	a.stage.Stepf("A's write has reached %s", a.stage.Store)
	a.wait()
}

// buyBeforeWrite has B buy before A's write goes on, and C after that. B buys another count than A: if both left the
// same stock, nobody could tell that one was lost.
func (s *Stage) buyBeforeWrite(a lateHolder) {
	s.buyNow("B", 2)
	a.land()
	s.send(to(s.Survivor, "C", 1))
}

// overtake has a fault strike while A's write is held, and B buy before that write arrives.
func (s *Stage) overtake(strike func()) {
	a := s.holdWrite(patientTimeout)
	strike()
	s.buyBeforeWrite(a)
}

// askMeanwhile has B ask for the lock. When B has sold, or was not granted the lock, A's write goes on.
func (s *Stage) askMeanwhile(a lateHolder) (sold bool) {
	sold = s.tryToBuy(to(s.Survivor, "B", 2), time.Now(), 2*shortWait)
	s.blocked = 0 // nobody should buy while A is inside
	a.land()
	return sold
}

// buyOn has B buy, if it was not granted the lock before, and C after that.
func (s *Stage) buyOn(sold bool) {
	if !sold {
		s.buyNow("B-again", 2)
	}
	s.send(to(s.Survivor, "C", 1))
}

// arriveLate has B ask for the lock before A's write arrives, and others buy after that.
func (s *Stage) arriveLate(a lateHolder) { s.buyOn(s.askMeanwhile(a)) }

// killVictim kills the victim, once for all cells.
func (s *Stage) killVictim() {
	s.strike("the victim is killed", func(context.Context) error { return s.Victim.Kill() })
}

// stopVictim stops the victim (SIGSTOP), and waits until it has stopped.
func (s *Stage) stopVictim() {
	s.strike("the victim is stopped", func(ctx context.Context) error {
		if err := s.Victim.Pause(); err != nil {
			return err
		}
		return awaitStopped(ctx, s.Victim.Name, s.Victim.PID)
	})
}

// continueVictim lets the victim go on (SIGCONT).
func (s *Stage) continueVictim() {
	s.mend("the victim goes on", func(context.Context) error { return s.Victim.Continue() })
}

// forget has a fault strike while A is inside. The lock is on the server before, and should be on the server after.
func (s *Stage) forget(
	a lateHolder, before, after *servers.Redis, what string, strike func(context.Context) error,
) {
	rest := s.lockPTTL(before)
	if rest == noKey {
		s.failf("client A is inside, but its lock %s is not in Redis", s.lockKey())
	}
	asked := time.Now()
	s.strike(what, strike)
	left := s.lockPTTL(after)
	a.isUnanswered("the fault struck")
	if rest > 0 && time.Since(asked) >= time.Duration(rest) {
		s.failf("the lease of client A may have ended by itself, after %v", time.Since(asked))
	}
	s.Provef("A was inside when %s; the PTTL of its lock was %s before, and is %s now", what, rest, left)
}

// streamKey is the stream of the item's sales.
func (s *Stage) streamKey() string { return s.Addresses.KeyPrefix + stockKey(s.Item) + ":sales" }

// entries counts the sales that are in the item's stream.
func (s *Stage) entries() int64 {
	side := s.openRedis()
	defer side.Close()
	entries, err := side.XLen(s.ctx, s.streamKey()).Result()
	s.check(err)
	return entries
}
