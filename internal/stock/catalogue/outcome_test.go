package catalogue_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// A connection is cut around the write of each strategy. Cut before, nothing was deducted; cut after, it was, and the
// strategy cannot know: it must say so, and never that nothing was deducted.
func TestALostReplyLeavesTheOutcomeUnknown(t *testing.T) {
	a := stocktest.NewAddresses(t)
	direct := stocktest.NewService(t, a.Connect(t))
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	// A claim is an UPDATE, too, and a script: it sets the fence first, and deducts nothing.
	toMySQL := newProxy(t, config.Addr, regexp.MustCompile(`UPDATE good_(stock|slot) SET stock|COMMIT$`))
	toRedis := newProxy(t, a.Redis.Addr, regexp.MustCompile(`(?i)\r\nset\r\n\$\d+\r\nstock:|`+writingScripts(t, a)))
	proxied := a
	config.Addr = toMySQL.addr()
	proxied.MySQL = config.FormatDSN()
	proxied.Redis = &redis.Options{Addr: toRedis.addr(), DB: a.Redis.DB}
	service := stocktest.NewService(t, proxied.Connect(t))

	id := int64(1000)
	for _, strategy := range catalogue.Strategies {
		if strategy.Claim.OneReplica == stock.SellsNothing {
			continue
		}
		for _, on := range strategy.Stores {
			t.Run(strategy.Name+"/"+string(on), func(t *testing.T) {
				d, _, err := service.Resolve(strategy.Name, on)
				if err != nil {
					t.Fatal(err)
				}
				for _, test := range []struct {
					name string
					cut  cut
					left int64
				}{{"before the write", beforeSent, 100}, {"before the reply", beforeReply, 97}} { // so many that each slot has enough
					id++
					if err := direct.SetStock(t.Context(), id, 100); err != nil {
						t.Fatal(err)
					}
					toMySQL.arm(test.cut)
					toRedis.arm(test.cut)
					_, deductErr := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 3})
					toMySQL.arm(never)
					toRedis.arm(never)
					left, err := direct.Stock(t.Context(), on, id)
					if err != nil || left != test.left {
						t.Errorf("cut %s: %d units are left, %v, want %d", test.name, left, err, test.left)
					}
					switch {
					case deductErr == nil:
						t.Errorf("cut %s: the deduction was confirmed", test.name)
					case test.cut == beforeReply && !errors.Is(deductErr, stock.ErrUnknown):
						t.Errorf("cut %s: %v, want outcome unknown", test.name, deductErr)
					}
					stocktest.Drain(t, direct) // or the next cut would be that of a write behind
				}
			})
		}
	}
}

// writingScripts loads the scripts that deduct, so that they are not sent as text, and matches their being run.
func writingScripts(t *testing.T, a stocktest.Addresses) string {
	var hashes []string
	for _, name := range []string{"../redis/lua/write.lua", "../redis/lua/deduct.lua", "../stream/lua/sell.lua"} {
		hash, err := stocktest.Redis(t, a.Redis).ScriptLoad(t.Context(), script(t, name)).Result()
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	return `evalsha\r\n\$40\r\n(?:` + strings.Join(hashes, "|") + `)`
}

func script(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Once the write may be on its way, giving the lock back would let another read before it lands.
func TestALockWithoutAFenceIsKeptWhileTheOutcomeIsUnknown(t *testing.T) {
	a := stocktest.NewAddresses(t)
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newProxy(t, config.Addr, regexp.MustCompile(`UPDATE good_stock SET stock`))
	config.Addr = proxy.addr()
	a.MySQL = config.FormatDSN()
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	for name, kept := range map[string]bool{
		"lock-redis-lua":    true,
		"lock-redis-fenced": false, // the next holder's claim sees the write, or refuses it
	} {
		if err := service.SetStock(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		d, _, err := service.Resolve(name, stock.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		proxy.arm(beforeReply)
		if _, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); !errors.Is(err, stock.ErrUnknown) {
			t.Fatalf("%s: %v, want outcome unknown", name, err)
		}
		if left := deps.Redis.PTTL(t.Context(), name+":{1}").Val(); (left > 0) != kept {
			t.Errorf("%s: the lock has %v left: kept until its lease ends should be %v", name, left, kept)
		}
	}
}

func TestALostLeaseEndsTheWork(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	deps := a.Connect(t)
	deps.Lease = 200 * time.Millisecond
	service := stocktest.NewService(t, deps)
	for _, name := range []string{"lock-redis-expiry", "lock-redis-owner", "lock-redis-lua", "lock-redis-reentrant", "lock-redlock"} { // none of them renews
		for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
			d, _, err := service.Resolve(name, on)
			if err != nil {
				t.Fatal(err)
			}
			if err := service.SetStock(t.Context(), 1, 10); err != nil {
				t.Fatal(err)
			}
			untilLost := func(ctx context.Context, at stock.Point) error {
				if at == stock.BeforeWrite {
					<-ctx.Done()
				}
				return nil // the pause does not end the work: the lease must
			}
			_, err = d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1, Pause: untilLost})
			if !errors.Is(err, stock.ErrBusy) {
				t.Errorf("%s on %s: %v, want busy: the lease ended before the write", name, on, err)
			}
			if left, err := service.Stock(t.Context(), on, 1); err != nil || left != 10 {
				t.Errorf("%s on %s: %d units are left, %v, want 10", name, on, left, err)
			}
		}
	}
}

// A request that was cancelled while its statement waits for a row's lock still learns, and its lock outlives, what
// became of the statement.
func TestACancelledRequestWaitsForItsWrite(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"update", "batch", "lock-redis-lua"} {
		deps := stocktest.NewAddresses(t).Connect(t)
		service := stocktest.NewService(t, deps)
		if err := service.SetStock(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		d, _, err := service.Resolve(name, stock.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		row, err := deps.MySQL.BeginTxx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := d.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1})
			done <- err
		}()
		waitForRowLock(t, deps)
		cancel()
		if err := row.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v, want a receipt: the statement was sent and carried out", name, err)
		}
		if left, err := service.Stock(t.Context(), stock.MySQL, 1); err != nil || left != 9 {
			t.Errorf("%s: %d units are left, %v, want 9", name, left, err)
		}
	}
}

// The same on Redis, whose client breaks a reply off at the deadline of its context, and only then.
func TestARequestWhoseTimeIsOverWaitsForItsWriteToRedis(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock-redis-lua", "lock-redis-fenced"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartRedis(t, servers.RedisOptions{})
			options := &redis.Options{Addr: server.Addr, ReadTimeout: time.Minute}
			service := stocktest.NewService(t, stock.Deps{Redis: stocktest.Redis(t, options), LockWait: 20 * time.Second, Lease: 30 * time.Second})
			d := service.Deducter(t, name, stock.Redis)
			if err := service.SetStock(t.Context(), 1, 10); err != nil {
				t.Fatal(err)
			}
			stopServer := func(_ context.Context, at stock.Point) error {
				if at != stock.BeforeWrite {
					return nil
				}
				return server.Signal(syscall.SIGSTOP)
			}
			err := stock.ErrBusy
			// A slow machine may not come to the write in time.
			for limit := time.Second; errors.Is(err, stock.ErrBusy) && limit < time.Minute; limit *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				done := make(chan error, 1)
				go func() {
					_, err := d.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1, Pause: stopServer})
					done <- err
				}()
				<-ctx.Done()
				if err := server.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				err = <-done
			}
			if err != nil {
				t.Errorf("%v, want a receipt: the write was sent and carried out", err)
			}
			if left, err := service.Stock(t.Context(), stock.Redis, 1); err != nil || left != 9 {
				t.Errorf("%d units are left, %v, want 9", left, err)
			}
		})
	}
}

func waitForRowLock(t *testing.T, deps stock.Deps) {
	t.Helper()
	serverstest.Eventually(t, "a statement waits for a row", func() bool {
		// innodb_trx is a cache, which is filled anew only when nobody has read it for 0.1 s.
		transactions.Lock()
		defer transactions.Unlock()
		time.Sleep(120 * time.Millisecond)
		var waiting int
		err := deps.MySQL.Get(&waiting, `SELECT COUNT(*) FROM information_schema.innodb_trx trx
			JOIN information_schema.processlist process ON process.id = trx.trx_mysql_thread_id
			WHERE process.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'`)
		if err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
}

var transactions sync.Mutex // of all tests, held to read innodb_trx

// Every way of writing to MySQL counts the version up and leaves another stamp: optimistic locking would not see it
// otherwise.
func TestOptimisticLockingSeesTheOtherStrategies(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	service := stocktest.NewService(t, a.Connect(t))
	for _, name := range []string{"optimistic-version", "optimistic-timestamp-us", "optimistic-stock"} {
		optimistic := service.Deducter(t, name, stock.MySQL)
		for _, strategy := range catalogue.Strategies {
			if strategy.Stores[0] != stock.MySQL {
				continue
			}
			other := service.Deducter(t, strategy.Name, stock.MySQL)
			if err := service.SetStock(t.Context(), 1, 10); err != nil {
				t.Fatal(err)
			}
			once := true
			sellBetween := func(ctx context.Context, at stock.Point) error {
				if at != stock.BeforeWrite || !once {
					return nil
				}
				once = false
				_, err := other.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1})
				return err
			}
			receipt, err := optimistic.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 2, Pause: sellBetween})
			if err != nil || receipt.Remaining != 7 || receipt.Attempts != 2 {
				t.Errorf("%s beside %s: %+v, %v, want 7 remaining after 2 attempts", name, strategy.Name, receipt, err)
			}
		}
	}
}
