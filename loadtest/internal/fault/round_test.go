package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

func TestTheOutcomeOfACellFollowsFromItsProofAndVerdict(t *testing.T) {
	t.Parallel()
	correct := verify.Verdict{Result: verify.Correct}
	wrong := verify.Verdict{Result: verify.Wrong, Evidence: []string{"item 1: lost"}}
	const struck = "it struck"
	for name, test := range map[string]struct {
		verdict verify.Verdict
		err     error
		proof   string
		blocked time.Duration
		never   bool
		broken  string
		reading bool
		claimed string
		want    report.Effect
		held    bool
	}{
		"safe": {
			verdict: correct, proof: struck, claimed: "refused", want: report.Safe, held: true,
		},
		"a short wait is no block": {
			verdict: correct, proof: struck, blocked: blockedAfter, claimed: "refused", want: report.Safe, held: true,
		},
		"blocked": {
			verdict: correct, proof: struck, blocked: 2 * time.Second, claimed: "blocks", want: report.Blocked, held: true,
		},
		"unavailable": {
			verdict: correct, proof: struck, blocked: time.Minute, never: true, claimed: "blocks",
			want: report.Unavailable, held: true,
		},
		"unsafe as claimed": {
			verdict: wrong, proof: struck, claimed: "loses-updates", want: report.Unsafe, held: true,
		},
		"unsafe, but claims to be safe": {
			verdict: wrong, proof: struck, claimed: "refused", want: report.Unsafe,
		},
		"safe, but claims to lose updates": {
			verdict: correct, proof: struck, claimed: "loses-updates", want: report.Safe,
		},
		"no proof": {
			verdict: correct, claimed: "refused", want: report.Inconclusive,
		},
		"unsafe as claimed, but without a proof": {
			verdict: wrong, claimed: "loses-updates", want: report.Inconclusive,
		},
		"unsafe without a proof, but claims to be safe": {
			verdict: wrong, claimed: "refused", want: report.Unsafe,
		},
		"breaks its claim, which the stock does not show": {
			verdict: correct, proof: struck, broken: "no refusal", claimed: "refused", want: report.Unsafe,
		},
		"unavailable, but claims to be blocked": {
			verdict: correct, proof: struck, blocked: time.Minute, never: true, claimed: "refused", want: report.Unavailable,
		},
		"unavailable while somebody read": {
			verdict: correct, proof: struck, blocked: time.Minute, never: true, reading: true, claimed: "refused",
			want: report.Unavailable, held: true,
		},
		"unsafe while somebody read": {
			verdict: wrong, proof: struck, reading: true, claimed: "refused", want: report.Unsafe,
		},
		"a scenario that failed": {
			verdict: correct, proof: struck, err: errors.New("no server"), claimed: "refused", want: report.Inconclusive,
		},
		"a scenario that failed because the answers contradict the store": {
			verdict: wrong, err: errors.New("unexpected answer"), claimed: "refused", want: report.Unsafe,
		},
		"a scenario that failed after it had proved that a claim was broken": {
			verdict: correct, proof: struck, broken: "no refusal", err: errors.New("no server"), claimed: "refused",
			want: report.Unsafe,
		},
		"unsafe as claimed, in a scenario that failed before its fault struck": {
			verdict: wrong, err: errors.New("no server"), claimed: "loses-updates", want: report.Inconclusive,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strategy := load.Strategy{Name: "s", Claim: load.Claim{LateWrite: test.claimed}}
			lateWrite := named(t, "late-write")
			c := &cell{
				scenario: lateWrite, claim: lateWrite.Claim(strategy),
				verdict: test.verdict, err: test.err,
				command: "loadtest faults", stage: &Stage{
					player: &Player{Reading: test.reading}, Sale: messages.Sale{Strategy: strategy},
					proof: test.proof, blocked: test.blocked, never: test.never, broken: test.broken,
				},
			}
			got := c.result()
			if got.Effect != test.want || got.ClaimHeld != test.held {
				t.Errorf("%s, claim held %t, want %s, %t", got.Effect, got.ClaimHeld, test.want, test.held)
			}
		})
	}
}

func TestWhatAScenarioLeavesInTheBackgroundEndsWithIt(t *testing.T) {
	t.Parallel()
	ended := false
	failed := errors.New("no server")
	closed := false
	err := new(Stage).play(t.Context(), func(s *Stage) {
		s.atEnd = append(s.atEnd, func() { closed = true })
		s.meanwhile(func() {
			<-s.ctx.Done()
			ended = closed
		})
		s.check(failed)
		t.Error("the scenario went on after a step that could not be played")
	})
	if !errors.Is(err, failed) || !ended {
		t.Errorf("the scenario ended with %v; what it opened was closed, and its background was over: %t", err, ended)
	}
}

func TestAPartInTheBackgroundThatFailsEndsTheScenarioThatWaitsForIt(t *testing.T) {
	t.Parallel()
	failed := errors.New("no server")
	err := new(Stage).play(t.Context(), func(s *Stage) {
		wait := s.meanwhile(func() { s.check(failed) })
		wait()
		t.Error("the scenario went on")
	})
	if !errors.Is(err, failed) {
		t.Errorf("the scenario ended with %v, want %v", err, failed)
	}
}

// named returns a scenario.
func named(t *testing.T, name string) Scenario {
	t.Helper()
	found, err := Find([]string{name})
	must.Succeed(t, err)
	return found[0]
}

func TestFindNamesTheScenariosThatExist(t *testing.T) {
	t.Parallel()
	found, err := Find([]string{"late-write", "holder-dies"})
	if err != nil || len(found) != 2 || found[0].Name != "late-write" {
		t.Errorf("found %v, %v", found, err)
	}
	found, err = Find([]string{"ghost-lock", "ghost-lock/stall"})
	if err != nil || len(found) != len(ghostPlays) {
		t.Errorf("found %d variants of ghost-lock, %v, want each of %d once", len(found), err, len(ghostPlays))
	}
	if _, err := Find([]string{"late-right"}); err == nil || !strings.Contains(err.Error(), "late-write") {
		t.Errorf("error %v, want it to name late-write", err)
	}
}

// How long the lab's leases last says nothing about those of others.
func TestABlockForATimeThatIsSetSaysWhatEndedIt(t *testing.T) {
	t.Parallel()
	const untilLease = "blocked until the lease ends (here 4 s)"
	const untilGivenUp = "blocked until the holder gives up (here 4 s)"
	leased := load.Claim{HolderCrash: "blocks-until-lease-ends", HolderPause: "refused", LateWrite: "refused"}
	unleased := load.Claim{HolderPause: "blocks", LateWrite: "blocks"}
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		scenario string
		claim    load.Claim
		lease    time.Duration
		blocked  time.Duration
		gaveUp   time.Duration // before the sale; 0: not
		want     string
	}{
		"the holder dies":       {"holder-dies", leased, 4000 * ms, 4020 * ms, 0, untilLease},
		"the holder pauses":     {"holder-pauses", leased, 4000 * ms, 4300 * ms, 0, untilLease},
		"renewed before":        {"holder-dies", leased, 4000 * ms, 2800 * ms, 0, untilLease},
		"too short":             {"holder-dies", leased, 4000 * ms, 2000 * ms, 0, "blocked 2.0 s"},
		"too long":              {"holder-dies", leased, 4000 * ms, 8000 * ms, 0, "blocked 8.0 s"},
		"the lock has no lease": {"holder-pauses", unleased, 4000 * ms, 4000 * ms, 0, "blocked 4.0 s"},
		"the holder gives up":   {"late-write", leased, 2000 * ms, 4020 * ms, 10 * ms, untilGivenUp},
		"it gave up long ago":   {"late-write", leased, 2000 * ms, 4020 * ms, 900 * ms, "blocked 4.0 s"},
		"it did not give up":    {"late-write", leased, 2000 * ms, 4020 * ms, 0, "blocked 4.0 s"},
	} {
		strategy, scenario := load.Strategy{Name: "s", Claim: test.claim}, named(t, test.scenario)
		c := &cell{
			scenario: scenario, claim: scenario.Claim(strategy),
			verdict: verify.Verdict{Result: verify.Correct}, stage: &Stage{
				player: &Player{}, Sale: messages.Sale{Strategy: strategy, Lease: test.lease}, proof: "it struck",
				blocked: test.blocked,
			},
		}
		if test.gaveUp > 0 {
			c.history.Ops = []history.Op{
				{Outcome: history.Unknown, ReceivedNS: int64(time.Minute - test.gaveUp)},
				{Outcome: history.Sold, ReceivedNS: int64(time.Minute)},
			}
		}
		if got := c.result(); got.String() != test.want || got.Seconds != test.blocked.Seconds() {
			t.Errorf("%s: %s after %g s, want %s", name, got, got.Seconds, test.want)
		}
	}
}
