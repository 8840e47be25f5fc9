package mutation

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Line describes a trial in one line for the terminal.
func (t Trial) Line() string {
	mark := "ok  "
	if !t.Passed() {
		mark = "FAIL"
	}
	return fmt.Sprintf("%s %4.1f s  %-9s %-36s %s", mark, t.Took.Seconds(), t.Family, t.Name, t.outcome())
}

// outcome is the verdict with its evidence.
func (t Trial) outcome() string {
	text := strings.ToUpper(string(t.Verdict))
	if t.Workload != "" {
		text += fmt.Sprintf(" by %s, run %d: %s", t.Workload, t.Runs, cmp.Or(t.Evidence, "no evidence"))
	}
	if t.Strikes == 0 && t.counted() {
		text += " (its change was never applied)"
	}
	return text
}

// Summary says how many of the trials passed.
func Summary(trials []Trial) string {
	var bugs, found, oddities, cleared int
	var took time.Duration
	for _, t := range trials {
		took += t.Took
		switch {
		case t.Oddity && t.Passed():
			cleared++
			fallthrough
		case t.Oddity:
			oddities++
		case t.Passed():
			found++
			fallthrough
		default:
			bugs++
		}
	}
	return fmt.Sprintf("%d of %d bugs were found WRONG, %d of %d oddities CORRECT (%v)",
		found, bugs, cleared, oddities, took.Round(time.Second))
}
