package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/report"
)

// limitPlays are scenarios of something that runs out: connections, turns, memory, disk, stock, numbers.
var limitPlays = map[string]func(*Stage){
	"database-crash": func(s *Stage) {
		db := s.mysql()
		s.setManyUnits()
		flush := strings.TrimPrefix(s.variant(), "flush-")
		set := "SET GLOBAL innodb_flush_log_at_trx_commit = " + flush
		s.together(report.Event, set, execute(db, set))
		before, after := s.sellAndFlush(db, flush == "1")
		s.meet("all have sold")
		now := s.readRedoLog(db).flushed
		s.requiref(flush == "1" || now == before.flushed, "the log was flushed after the sales, up to %d", now)
		s.strike("MySQL is killed and started again", s.MySQL.Restart)
		s.Provef("the log was flushed up to %d before the sales, and up to %d of %d after them; then MySQL was killed",
			before.flushed, after.flushed, after.written)
		s.buyNow("D", 1)
	},
	"pool-deadlock": func(s *Stage) {
		s.setManyUnits()
		front := s.proxyTo(s.Victim.Address())
		// Two cells at the same replica could not tell whose connections are in use.
		s.inTurn(func() { s.buyAtOnce(front) })
	},
	"starvation/overtaken": func(s *Stage) {
		s.setManyUnits()
		began := time.Now()
		a, others := s.eachTime(s.StoreProxy(s.Victim.Proxies), s.WritesStock, func(n int) {
			s.mustBuy(to(s.Survivor, fmt.Sprintf("B%d", n), 1))
		})
		if others > 1 || others == 1 && a.Outcome == history.Sold {
			s.Provef("the proxy has held every write of A until another had bought: %d in %.1f s", others,
				time.Since(began).Seconds())
		}
		s.starved(a, began, others)
	},
	"starvation/polling": func(s *Stage) {
		s.setManyUnits()
		s.send(to(s.Victim, "Z", 1)) // the scripts must be known to Redis: each question is one command
		holder := s.enter("B1")
		if hasQueue(s.Strategy) {
			s.askAmongMany(holder)
			return
		}
		// Each question of A is on the wire until the lock has passed from one holder to the next.
		began := time.Now()
		a, asked := s.eachTime(s.Victim.Redis, s.TouchesLock, func(n int) {
			holder.land()
			holder = s.enter(fmt.Sprintf("B%d", n+1))
		})
		holder.land()
		if asked > 1 {
			s.Provef("A asked for the lock %d times in %.1f s; each time it was free meanwhile, and another had it again",
				asked, time.Since(began).Seconds())
		}
		s.starved(a, began, asked)
	},
	"out-of-space/mysql": playFullDisk,
	"out-of-space/redis": func(s *Stage) {
		client := s.openRedis()
		defer client.Close()
		maxMemory := func(bytes string) func(context.Context) error {
			return func(ctx context.Context) error { return client.ConfigSet(ctx, "maxmemory", bytes).Err() }
		}
		a := s.hold(to(s.Victim, "A", 1), messages.Commit)
		s.strike("Redis is out of memory", maxMemory("1"))
		a.land()
		b := s.send(to(s.Survivor, "B", 2))
		info := client.InfoMap(s.ctx, "memory")
		s.check(info.Err())
		memory := info.Item("Memory", "used_memory")
		// A script that has written may go on writing when memory is short, because Redis does not roll back.
		switch grants := s.Strategy.Name == "lock-redis-fair"; {
		case grants && b.Outcome == history.Sold:
			s.Provef("Redis uses %s bytes and may use 1 (maxmemory), and still grants B the lock", memory)
		case !grants && b.Outcome == history.Busy:
			s.Provef("Redis uses %s bytes and may use 1 (maxmemory), and B is refused: %s", memory, b.Error)
		default:
			s.Failf("Redis uses %s bytes and may use 1 (maxmemory), and B is answered %d %s", memory, b.Status, b.Error)
		}
		s.mend("there is room again", maxMemory("0"))
		s.buyNow("C", 3)
	},
	"sequence-wraps": func(s *Stage) {
		s.send(to(s.Victim, "Z", 1))
		queue := "/stock/" + url.PathEscape(s.LockKey())
		s.wrap(queue)
		a := s.holdWrite()
		others := make([]*pending, 4) // if the order were left to chance, it would seldom be right
		for i := range others {
			others[i] = s.start(patiently(to(s.Survivor, fmt.Sprintf("B%d", i+1), 2)))
		}
		s.proveWrapped(queue, others)
		for _, b := range others { // each is refused when it has waited for as long as it may (--lock-wait)
			b.wait()
		}
		a.land()
		s.buyNow("C", 3)
	},
	"false-sold-out/restocked-elsewhere": func(s *Stage) {
		s.mustBuy(to(s.Victim, "A", units))
		b := s.send(to(s.Victim, "B", 1))
		s.restock(s.Item, 5)
		s.Provef("the victim has told B that the item is %s, and the survivor has put 5 units back", b.Outcome)
		s.send(to(s.Victim, "C", 1))
	},
}

// playFullDisk has clients buy while the disk of MySQL is full, and afterwards.
func playFullDisk(s *Stage) {
	s.setManyUnits()
	ballast := filepath.Join(s.MySQL.Data, "ballast")
	s.strike("the disk of MySQL is full", func(context.Context) error { return fillDisk(ballast) })
	sales, refusal := s.buyOnFullDisk()
	var disk syscall.Statfs_t
	s.check(syscall.Statfs(s.MySQL.Data, &disk))
	tellOf := s.Provef
	if (refusal != "") != s.Strategy.Idempotent {
		tellOf = s.Failf
	}
	switch {
	case disk.Bavail > 0:
		s.failf("the disk has %d free blocks", disk.Bavail)
	case refusal != "":
		tellOf("the disk has no free block; after %d more sales, the next is refused: %s", sales, refusal)
	default:
		tellOf("the disk has no free block, and %d more sales are made", sales)
	}
	s.mend("there is room again", func(context.Context) error { return os.Remove(ballast) })
	s.buyNow("B", 2)
}

// sellAndFlush has clients buy until the log is as it should be after their sales: flushed to its end if each COMMIT
// flushes it, and not flushed at all otherwise. The server also writes and flushes for other reasons.
func (s *Stage) sellAndFlush(db *sql.DB, each bool) (before, after redoLog) {
	for try := range 40 {
		before = s.readRedoLog(db)
		s.mustBuy(to(s.Victim, fmt.Sprintf("A%d", try), 1))
		s.mustBuy(to(s.Survivor, fmt.Sprintf("B%d", try), 2))
		s.mustBuy(to(s.Victim, fmt.Sprintf("C%d", try), 1))
		after = s.readRedoLog(db)
		if each && after.flushed >= after.written || !each && after.flushed == before.flushed {
			return before, after
		}
	}
	s.failf("each time, the log was flushed up to %d of %d after the sales", after.flushed, after.written)
	return before, after
}

// redoLog is how far InnoDB's log has come, in bytes since the database was created.
type redoLog struct{ written, flushed int64 }

var redoLogStatus = regexp.MustCompile(`Log sequence number\s+(\d+)(?s:.*)Log flushed up to\s+(\d+)`)

func (s *Stage) readRedoLog(db *sql.DB) (log redoLog) {
	var engine, name, status string
	s.check(db.QueryRowContext(s.ctx, "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status))
	match := redoLogStatus.FindStringSubmatch(status)
	s.requiref(match != nil, "SHOW ENGINE INNODB STATUS does not say how far the log has come")
	_, err := fmt.Sscan(match[1]+" "+match[2], &log.written, &log.flushed)
	s.check(err)
	return log
}

const (
	poolConns = 4 // of the victim
	poolUsers = 8 // of one item, at the same replica
)

// buyAtOnce has all users but A ask while A is inside.
func (s *Stage) buyAtOnce(front *tcpproxy.Proxy) {
	a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Commit)
	others := s.startBehind(front, poolUsers-1)
	var conns, waiting int
	s.eventually("the others wait for A", func() bool {
		conns, waiting = s.poolUse()
		return conns+waiting == len(others)+1 || !slices.Contains(waitsInMySQL, s.Strategy.Name)
	})
	s.Provef("a proxy holds %s, and %d more requests have reached the replica, of whose %d connections to MySQL %d "+
		"are in use; %d requests wait for one", a.what, len(others), poolConns, conns, waiting)
	released := time.Now()
	a.land()
	next := released.Add(patientTimeout) // the first sale of another one
	for _, p := range append(others, a.pending) {
		if op := p.wait(); op.Outcome != history.Sold {
			s.Stepf("%s was not sold anything: %s", p.request, op.Error)
			s.never = true
		} else if answered := answeredAt(op); p != a.pending && answered.Before(next) {
			next = answered
		}
	}
	s.blocked = s.between(released, next)
}

// startBehind has n clients ask through a proxy, and waits until their requests have arrived there.
func (s *Stage) startBehind(front *tcpproxy.Proxy, n int) (others []*pending) {
	for i := range n {
		b := order{client: fmt.Sprintf("C%d", i+1), through: "http://" + front.Addr()}
		others = append(others, s.start(patiently(b)))
	}
	s.eventually("all requests have arrived", func() bool { return front.Count() >= n })
	return others
}

// waitsInMySQL lists the strategies whose requests each need a connection to MySQL to wait for A. Those of the others
// wait inside the replica, or in Redis. Those of update do not wait: A's transaction is one message, which is held.
var waitsInMySQL = []string{"for-update", "serializable"}

// poolUse reads from the victim's metrics how many connections to MySQL are in use, without those that hold locks, and
// how many requests wait for one.
func (s *Stage) poolUse() (conns, waiting int) {
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.Victim.AdminURL+"/metrics", nil)
	s.check(err)
	response, err := s.Service.Client.Do(request)
	s.check(err)
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	s.check(err)
	for name, value := range map[string]*int{
		`go_sql_in_use_connections{db_name="mysql"}`: &conns, "stock_mysql_share_waiting": &waiting,
	} {
		_, after, _ := strings.Cut(string(metrics), "\n"+name+" ")
		text, _, _ := strings.Cut(after, "\n")
		*value, err = strconv.Atoi(text)
		s.requiref(err == nil, "the metric %s: %w", name, err)
	}
	return conns, waiting
}

// eachTime has A buy, and holds each of its messages that match until somebody else has done something, for the n-th
// time. It returns how often that was.
func (s *Stage) eachTime(proxy *tcpproxy.Proxy, match func(tcpproxy.Message) bool, do func(n int)) (history.Op, int) {
	held := s.catch(proxy, match)
	a := s.start(patiently(to(s.Victim, "A", 1)))
	n := 0
	for !a.answeredBefore(held.Arrived()) {
		n++
		next := s.catch(proxy, match)
		do(n)
		held.Release()
		held = next
	}
	held.Release()
	return a.wait(), n
}

// starved records that A could not buy since then, while others bought, if that is so.
func (s *Stage) starved(a history.Op, since time.Time, others int) {
	if a.Outcome != history.Sold {
		s.blocked, s.never = s.between(since, time.Now()), true
		s.Stepf("A could not buy for %.1f s, in which others bought %d times", s.blocked.Seconds(), others)
	}
}

// enter has a client buy at the survivor, and waits until it is inside.
func (s *Stage) enter(client string) held {
	return s.hold(patiently(to(s.Survivor, client, 1)), messages.Commit)
}

// askAmongMany has others ask for the lock after A. Some of them may be served first, in the turn of their replica. The
// times are the replicas'.
func (s *Stage) askAmongMany(holder held) {
	question := s.catch(s.Victim.Redis, s.TouchesLock)
	a := s.start(patiently(to(s.Victim, "A", 1))).caught(question)
	question.land()
	s.Stepf("B1 has the lock, and A has asked for it")
	front := s.proxyTo(s.Survivor.Address()) // those who wait in one replica may share one question
	others := s.startBehind(front, crowdUsers)
	began := time.Now()
	holder.land()
	answer, before := a.wait(), 0
	s.blocked = s.between(began, time.Now())
	for _, b := range others {
		if op := b.wait(); op.Outcome == history.Sold && op.EnteredNS < answer.EnteredNS {
			before++
		}
	}
	s.Provef("A had asked while B1 had the lock, and %d others asked after A; %d of them were served before A",
		len(others), before)
	s.starved(answer, began, before)
}

// fillDisk writes a file until there is no room for one more byte.
func fillDisk(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		switch _, err := file.Write(make([]byte, size)); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return err
		}
	}
	return nil
}

const (
	fullDiskSales = 50    // with a full disk, by a strategy that needs no space
	fullDiskTries = 10000 // until one is refused, by a strategy that needs some
)

// buyOnFullDisk counts the sales until one is refused, and returns why, or until there were enough. It fails the claim
// if an answer leaves open whether something was sold.
func (s *Stage) buyOnFullDisk() (sales int, refusal string) {
	enough := fullDiskSales
	if s.Strategy.Idempotent {
		enough = fullDiskTries
	}
	for ; sales < enough; sales++ {
		op := s.exchange(to(s.Victim, fmt.Sprintf("A%d", sales), 1))
		s.keep(op) // without a step: there are many
		switch op.Outcome {
		case history.Sold:
		case history.Busy:
			return sales, op.Error
		default:
			s.Failf("with a full disk, A%d was answered %d %s, which is no clear refusal", sales, op.Status, op.Error)
			return sales, "no clear refusal"
		}
	}
	return sales, ""
}
