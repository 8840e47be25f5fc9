package suggest

import (
	"strings"
	"testing"
)

func TestDidYouMeanNamesOnlyWhatIsClose(t *testing.T) {
	t.Parallel()
	known := []string{
		"noop", "none", "mutex", "update", "for-update", "optimistic-version", "optimistic-stock", "optimistic-spin",
		"optimistic-timestamp", "lock-redis-lua", "lock-redis-fenced", "lock-redlock", "batch",
	}
	for name, want := range map[string]string{
		"updaet":             `: did you mean "update"?`,
		"Update":             `: did you mean "update"?`,
		"for_update":         `: did you mean "for-update"?`,
		"optimistic-vresion": `: did you mean "optimistic-version"?`,
		"lock-redis-fence":   `: did you mean "lock-redis-fenced"?`,
		"nonp":               `: did you mean "noop" or "none"?`,
		"redlock":            `: did you mean "lock-redlock"?`,
		"optimistic":         `: did you mean "optimistic-version", "optimistic-stock" or "optimistic-spin"?`,
		"hope":               "",
		"no":                 "",
		"":                   "",
		"überhaupt":          "",

		strings.Repeat("update", 20): "",
	} {
		if got := DidYouMean(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
