package fault

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"stock/internal/servers"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

var pauseScenarios = []Scenario{holderPauses, pausesBeforeWrite}

// holderPauses is the story of a replica that is stopped inside its critical section.
var holderPauses = Scenario{
	Name: "holder-pauses",
	Title: "The replica is stopped inside its critical section until all leases have ended, and then goes on " +
		"(SIGSTOP, SIGCONT).",
	Applies: func(s scenario.Strategy) string {
		if s.Claim.HolderPause == "loses-updates" && s.Claim.LateCaveat != "" {
			return "whether the sale is lost depends on whether a new second begins meanwhile"
		}
		return everyStrategy(s)
	},
	Claim:   pauseClaim,
	Missing: processStates,
	Deploy:  deployPaused,
	Play: func(ctx context.Context, s *Stage) error {
		points := []string{"after-read", "after-lock", "before-write"}
		if s.Strategy.Claim.HolderPause == "blocks" {
			points = append([]string{"before-commit"}, points...) // the row is not locked before
		}
		return s.pauseAt(ctx, points...)
	},
}

// pausesBeforeWrite is the same story for locks, later: nothing is between the pause point and the write.
var pausesBeforeWrite = Scenario{
	Name:  "pauses-before-write",
	Title: "The holder of a lock is stopped after its last check that the lock is its own, just before it writes.",
	Applies: func(s scenario.Strategy) string {
		if !strings.HasPrefix(s.Name, "lock-") {
			return "the story is about locks"
		}
		return ""
	},
	Claim:     pauseClaim,
	Practices: []Practice{checkThenWrite},
	Missing:   processStates,
	Deploy:    deployPaused,
	Play:      func(ctx context.Context, s *Stage) error { return s.pauseAt(ctx, "before-write") },
}

func pauseClaim(s scenario.Strategy) Claim {
	words := s.Claim.HolderPause
	switch {
	case words == "loses-updates":
		return claim(words, report.Unsafe)
	case words == "blocks" && s.Claim.LateCaveat != "":
		return claim(words+", "+s.Claim.LateCaveat, report.Safe, report.Blocked)
	case words == "blocks":
		return claim(words, report.Blocked)
	case s.Claim.HolderCrash == "blocks-until-lease-ends":
		return claim(words, report.Blocked)
	}
	return claim(words, report.Safe)
}

// processStates returns why the state of a process cannot be seen here.
func processStates(context.Context) string {
	if runtime.GOOS != "linux" {
		return "only Linux shows in /proc that a process is stopped"
	}
	return ""
}

// pauseLease is long enough that every holder is inside before the first lease ends, also on a busy machine.
const pauseLease = 2 * lease

var deployPaused = patient("--lease=" + pauseLease.String())

// pauseAt stops the victim while A is parked at the first of the points that the strategy passes.
func (s *Stage) pauseAt(ctx context.Context, points ...string) error {
	holder, point, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, points...)
	if err != nil {
		return err
	}
	blocked := time.Now() // since then, if the lock is a lease
	err = s.Together(ctx, "the victim is stopped", func(ctx context.Context) error { return stop(ctx, s.Victim) })
	switch {
	case err != nil:
		return err
	case holder.answered():
		return fmt.Errorf("client A was answered before the victim was stopped: %s", holder.op.Error)
	}
	if s.Strategy.Claim.HolderCrash != "blocks-until-lease-ends" {
		blocked = time.Now() // the other cells may have taken a while to get ready
	}
	s.Provef("/proc says that the victim is stopped, with A at %s", point)
	limit := patience
	if s.Strategy.Claim.HolderPause == "blocks" {
		limit = pauseLease + time.Second // long enough to see that the lock does not end with a lease
	}
	// B buys another count than A: if both left the same stock, nobody could tell that one was lost.
	buyer := order{client: "B", at: s.Survivor, count: 2}
	sold, err := s.tryToBuy(ctx, buyer, blocked, limit)
	if err != nil {
		return err
	}
	err = s.Mend(ctx, "the victim goes on", func(context.Context) error { return s.Victim.Continue() })
	if err != nil {
		return err
	}
	if err := s.goOn(ctx, holder); err != nil {
		return err
	}
	if !sold {
		buyer.client = "B-again"
		if err := s.buy(ctx, buyer, blocked); err != nil {
			return err
		}
	}
	_, err = s.send(ctx, order{client: "C", at: s.Survivor})
	return err
}

// goOn lets A go on. If its strategy claims that it gives up when it finds its lease ended, it is given the time.
func (s *Stage) goOn(ctx context.Context, holder *pending) error {
	if s.Strategy.Claim.HolderPause == "not-sent" {
		return holder.giveUp(ctx)
	}
	return s.resume(ctx, holder)
}

// stop stops a replica, and waits until it has.
func stop(ctx context.Context, r *topology.Isolated) error {
	if err := r.Pause(); err != nil {
		return err
	}
	return awaitStopped(ctx, r.Name, r.PID)
}

// awaitStopped waits until a process that was sent SIGSTOP has stopped.
func awaitStopped(ctx context.Context, name string, pid int) error {
	return eventually(ctx, name+" is stopped", func() (bool, error) {
		state, err := servers.ProcessState(pid)
		return state == 'T', err
	})
}

// checkThenWrite checks that the lock is still its own before it writes. Nothing keeps the lease from ending between
// the two.
var checkThenWrite = Practice{
	Name:  "check-then-write",
	Claim: claim("loses-updates", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		a := s.ask("A", 1)
		if err := shop.lock(ctx, "A"); err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		switch holder, err := shop.holder(ctx); {
		case err != nil:
			return err
		case holder != "A":
			return fmt.Errorf("the lock of client A is lost before its check: %q holds it", holder)
		}
		s.Stepf("A has read %d, and has checked that the lock is still its own", units)
		if err := shop.awaitFree(ctx); err != nil {
			return err
		}
		s.Provef("the key of the lock has expired before A writes")
		s.perform("B", 2, func() (int64, error) { return shop.sell(ctx, "B", 2) })
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}
