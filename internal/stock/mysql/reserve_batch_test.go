package mysql_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

var confirming = regexp.MustCompile(`UPDATE reservation .*'confirmed'`)

func TestHoldsThatWaitShareATransactionAndConfirmationsAStatement(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "reserve", 100)
	first, others, release := r.Gather(t, 2, 5, 1, 30)
	before := r.Proxy.Count()
	release()
	stocktest.WantAnswers(t, stocktest.Answers(append([]<-chan stocktest.Answer{first}, others...)...),
		"99 remain", "97 remain", "92 remain", "91 remain", "61 remain")
	// A batch of holds: SELECT, BEGIN, INSERT, UPDATE, COMMIT. The first SELECT was held back. The second batch is
	// confirmed in one or two statements, since the first of it may lead before the others have arrived.
	if sent := r.Proxy.Count() - before; sent > 4+1+5+2 {
		t.Errorf("%d round trips for 5 requests, want at most 12", sent)
	}
	r.WantLeft(t, 61)
	var confirmed, units int
	row := r.Deps.MySQL.QueryRow("SELECT COUNT(*), SUM(count) FROM reservation WHERE state = 'confirmed'")
	if err := row.Scan(&confirmed, &units); err != nil || confirmed != 5 || units != 39 {
		t.Errorf("%d reservations of %d units are confirmed, %v, want 5 of 39", confirmed, units, err)
	}
}

// keyed gives every request the same key.
func keyed(req stock.HoldRequest) stock.HoldRequest {
	req.Key = "a"
	return req
}

func TestTheHoldsOfABatchThatHaveOneKeyAreRefusedTogether(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "reserve", 1)
	reserve := r.Deducter.(stock.Reserver)
	unlock := stocktest.LockRow(t, r.Deps.MySQL, r.Item)
	leader := r.Ask(t.Context(), r.Item, 1)
	stocktest.WaitForRowLock(t, r.Deps.MySQL)
	var others []<-chan stocktest.Answer
	for range 3 {
		done := make(chan stocktest.Answer, 1)
		others = append(others, done)
		go func() {
			_, receipt, err := reserve.Hold(t.Context(), stock.HoldRequest{
				Request: stock.Request{GoodsID: r.Item, Count: 2, Key: "a"}, TTL: time.Hour,
			})
			done <- stocktest.Answer{Receipt: receipt, Err: err}
		}()
		serverstest.Eventually(t, "it waits", func() bool { return r.Waiting() == len(others) })
	}
	unlock()
	stocktest.WantAnswers(t, stocktest.Answers(append(others, leader)...),
		"sold out at 0", "sold out at 0, replayed", "sold out at 0, replayed", "0 remain")
}

// The units come back, and the other replica holds them, before the refusal is recorded.
func TestAHoldWhoseRefusalIsOvertakenByItsCopyGetsTheReservation(t *testing.T) {
	t.Parallel()
	direct, behind, proxy := proxied(t, 2)
	caught := proxy.Catch(stocktest.Matching(regexp.MustCompile("INSERT INTO ledger")))
	defer caught.Release()
	done := behind.start(t, keyed(behind.request(3, time.Hour)))
	<-caught.Arrived()
	direct.service.Set(t, direct.item, 10)
	first, _, err := direct.Hold(t.Context(), keyed(direct.request(3, time.Hour)))
	must.Succeed(t, err)
	caught.Release()
	if late := <-done; late.err != nil || late.held.ID != first.ID || !late.receipt.Replayed {
		t.Errorf("%+v, want a replay of %+v", late, first)
	}
	direct.wantLeft(t, 7)
}

// The connection is cut before the refusal is recorded, or before the reply to that.
func TestAHoldWhoseRefusalIsNotRecordedIsNotToldOfIt(t *testing.T) {
	t.Parallel()
	for _, where := range []tcpproxy.CutPoint{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		direct, behind, proxy := proxied(t, 2)
		proxy.Select(stocktest.Matching(regexp.MustCompile("INSERT INTO ledger")))
		proxy.Cut(1, where)
		req := keyed(behind.request(3, time.Hour))
		if _, _, err := behind.Hold(t.Context(), req); !errors.Is(err, stock.ErrUnavailable) {
			t.Errorf("cut %s: %v, want unavailable", where, err)
		}
		serverstest.Eventually(t, "the refusal is recorded", func() bool {
			_, receipt, err := direct.Hold(t.Context(), req)
			return errors.Is(err, stock.ErrSoldOut) && receipt.Replayed
		})
		direct.wantLeft(t, 2)
	}
}

// Two replicas and two requests of one batch.
func TestHoldsWithOneKeyAtTheSameTimeAreCarriedOutOnce(t *testing.T) {
	t.Parallel()
	shops, outside := newShops(t, 10)
	unlock := stocktest.LockRow(t, outside, shops[0].item)
	var holds []<-chan holding
	for i := range 6 {
		holds = append(holds, shops[i%2].start(t, keyed(shops[0].request(3, time.Hour))))
	}
	stocktest.WaitForRowLock(t, outside)
	unlock()
	ids := map[stock.ReservationID]bool{}
	for _, hold := range holds {
		answer := <-hold
		must.Succeed(t, answer.err)
		ids[answer.held.ID] = true
	}
	if len(ids) != 1 {
		t.Errorf("one key made the reservations %v", ids)
	}
	shops[0].wantLeft(t, 7)
}

// proxied makes a replica behind a proxy, and one beside it.
func proxied(t testing.TB, units int64) (direct, behind shop, proxy *tcpproxy.Proxy) {
	t.Helper()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	direct = shop{reserver(t, service), deps, service, service.NewItem(t, units)}
	proxy, a.MySQL = stocktest.ProxyMySQL(t, a.MySQL)
	behind = direct
	behind.deps = a.Connect(t)
	behind.Reserver = reserver(t, stocktest.NewService(t, behind.deps))
	return direct, behind, proxy
}

func TestWhatBecameOfALostConfirmationIsToldWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	for where, state := range map[tcpproxy.CutPoint]stock.ReservationState{
		tcpproxy.BeforeRequest: stock.Held, tcpproxy.BeforeReply: stock.Confirmed,
	} {
		direct, behind, proxy := proxied(t, 10)
		id := behind.hold(t, 3)
		proxy.Select(stocktest.Matching(confirming))
		proxy.Cut(1, where)
		if _, err := behind.Confirm(t.Context(), id); !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("cut %s: %v, want outcome unknown", where, err)
		}
		serverstest.Eventually(t, "the statement has ended", func() bool {
			found, err := direct.Reservation(t.Context(), id)
			return err == nil && found.State == state
		})
		if confirmed, err := direct.Confirm(t.Context(), id); err != nil || confirmed.State != stock.Confirmed {
			t.Errorf("cut %s, sent again: %+v, %v", where, confirmed, err)
		}
	}
}

// Deduct finds out what became of its confirmation.
func TestADeductionWhoseConfirmationIsLostIsCertain(t *testing.T) {
	t.Parallel()
	for where, left := range map[tcpproxy.CutPoint]int64{tcpproxy.BeforeRequest: 10, tcpproxy.BeforeReply: 7} {
		direct, behind, proxy := proxied(t, 10)
		proxy.Select(stocktest.Matching(confirming))
		proxy.Cut(1, where)
		_, err := behind.Reserver.(stock.Deducter).Deduct(t.Context(), stock.Request{GoodsID: direct.item, Count: 3})
		if sold := left == 7; sold != (err == nil) || !sold && !errors.Is(err, stock.ErrUnavailable) {
			t.Errorf("cut %s: %v", where, err)
		}
		direct.wantLeft(t, left)
	}
}

// The row is locked for so long that the hold would be shorter than asked.
func TestAHoldThatWaitedForItsItemIsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	unlock := stocktest.LockRow(t, s.deps.MySQL, s.item)
	done := s.start(t, s.request(1, time.Minute))
	stocktest.WaitForRowLock(t, s.deps.MySQL)
	time.Sleep(200 * time.Millisecond) // a hold may be up to 0.1 s shorter
	var granted int64
	const now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	must.Succeed(t, s.deps.MySQL.Get(&granted, now))
	unlock()
	if a := <-done; a.err != nil || a.held.Created.UnixMicro() < granted {
		t.Errorf("%+v, %v: the hold began %v before it was granted",
			a.held, a.err, time.UnixMicro(granted).Sub(a.held.Created))
	}
}

// The key is taken by a transaction that is rolled back in the end.
func TestAHoldThatWaitedForItsKeyIsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	for _, work := range []time.Duration{0, time.Millisecond} {
		s := newShop(t)
		other := stocktest.Begin(t, s.deps.MySQL)
		_, err := other.Exec("INSERT INTO ledger (order_key, goods_id, count, remaining, outcome, fingerprint, created_at) " +
			"VALUES ('a', 1, 1, 0, 'done', '', UTC_TIMESTAMP(6))")
		must.Succeed(t, err)
		req := keyed(s.request(1, time.Minute))
		req.Hold = work
		done := s.start(t, req)
		stocktest.WaitForRowLock(t, s.deps.MySQL)
		// Longer than a hold may be shorter than asked.
		_, err = s.deps.MySQL.Exec("DO SLEEP(0.2)")
		must.Succeed(t, err)
		var granted int64
		must.Succeed(t, s.deps.MySQL.Get(&granted, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"))
		must.Succeed(t, other.Rollback())
		if a := <-done; a.err != nil || a.held.Created.UnixMicro() < granted {
			t.Errorf("with work of %v: %+v, %v: the hold began %v before its key was free", work, a.held, a.err,
				time.UnixMicro(granted).Sub(a.held.Created))
		}
	}
}

func TestTheKeyOfAHoldIsPrunedWithItsReservation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	req := keyed(s.request(1, time.Hour))
	first, _, err := s.Hold(t.Context(), req)
	must.Succeed(t, err)
	_, err = s.Cancel(t.Context(), first.ID)
	must.Succeed(t, err)
	_, err = s.deps.MySQL.Exec("UPDATE reservation SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR")
	must.Succeed(t, err)
	deleted, err := retention.PruneReservations(t.Context(), s.deps.MySQL, time.Hour)
	if err != nil || deleted != 1 {
		t.Errorf("deleted %d reservations, %v, want 1", deleted, err)
	}
	if next, receipt, err := s.Hold(t.Context(), req); err != nil || receipt.Replayed || next.ID == first.ID {
		t.Errorf("a hold with the pruned key: %+v, %+v, %v, want a new one", next, receipt, err)
	}
}

// A hold that may not wait takes the row only if it is free.
func TestAHoldThatDoesNotWaitIsRefusedWhileTheItemIsLocked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	unlock := stocktest.LockRow(t, s.deps.MySQL, s.item)
	ctx := stock.LimitWait(t.Context(), 0)
	if _, _, err := s.Hold(ctx, s.request(1, time.Hour)); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	unlock()
	if _, _, err := s.Hold(ctx, s.request(1, time.Hour)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Confirm(ctx, stock.NewReservationID()); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("a confirmation whose client is gone: %v, want busy", err)
	}
	s.wantLeft(t, 9)
}

// The connection is cut before the COMMIT is sent, or before its reply arrives.
func TestAHoldWhoseCommitIsLostIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	for where, replayed := range map[tcpproxy.CutPoint]bool{tcpproxy.BeforeRequest: false, tcpproxy.BeforeReply: true} {
		direct, behind, proxy := proxied(t, 10)
		proxy.Select(stocktest.Matching(commit))
		proxy.Cut(1, where)
		req := keyed(behind.request(3, time.Hour))
		if _, _, err := behind.Hold(t.Context(), req); !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("cut %s: %v, want outcome unknown", where, err)
		}
		_, receipt, err := direct.Hold(t.Context(), req)
		if err != nil || receipt.Replayed != replayed {
			t.Errorf("cut %s, sent again: %+v, %v, want replayed %v", where, receipt, err, replayed)
		}
		direct.wantLeft(t, 7)
	}
}
