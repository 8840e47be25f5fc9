package console

import (
	"regexp"
	"testing"

	"stock/loadtest/internal/fault"
)

func TestAClaimIsShownInWords(t *testing.T) {
	t.Parallel()
	for claim, want := range map[string]string{
		"not-sent":      "the holder gives up, unless its write has left",
		"loses-updates": "an update is lost",
		"loses-updates: B gets the mutex, and reads what was before A's write": "an update is lost: B gets the mutex, " +
			"and reads what was before A's write",
		"keeps the lock": "keeps the lock",
	} {
		if got := inWords(claim); got != want {
			t.Errorf("%q is shown as %q, want %q", claim, got, want)
		}
	}
	constant := regexp.MustCompile(`^[a-z]+-[a-z-]+`)
	for _, s := range fault.Scenarios {
		for _, p := range s.Practices {
			if got := inWords(p.Claim.Words); constant.MatchString(got) {
				t.Errorf("the claim of %s in %s is shown as %q", p.Name, s.Name, got)
			}
		}
	}
}
