package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
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
		claimed string
		want    report.Outcome
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
		"a story that failed": {
			verdict: correct, proof: struck, err: errors.New("no server"), claimed: "refused", want: report.Inconclusive,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strategy := scenario.Strategy{Name: "s", Claim: scenario.Claim{LateWrite: test.claimed}}
			c := &cell{
				scenario: lateWrite, claim: lateWrite.Claim(strategy), verdict: test.verdict, err: test.err,
				stage: &Stage{proof: test.proof, blocked: test.blocked, never: test.never, Strategy: strategy},
			}
			got := c.result()
			if got.Outcome != test.want || got.ClaimHeld != test.held {
				t.Errorf("%s, claim held %t, want %s, %t", got.Outcome, got.ClaimHeld, test.want, test.held)
			}
			if !strings.Contains(got.Replay, "--scenarios late-write --strategies s") {
				t.Errorf("replay with %q", got.Replay)
			}
		})
	}
}

func TestFindNamesTheScenariosThatExist(t *testing.T) {
	t.Parallel()
	found, err := Find([]string{"late-write", "holder-dies"})
	if err != nil || len(found) != 2 || found[0].Name != "late-write" {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := Find([]string{"late-right"}); err == nil || !strings.Contains(err.Error(), "late-write") {
		t.Errorf("error %v, want it to name late-write", err)
	}
}
