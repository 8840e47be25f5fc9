package stock

import (
	"time"

	"stock/internal/monotonic"
)

// Section times a deduction: when it arrived, and when it entered and left its critical section. The section begins
// when exclusion is certain (the lock is granted, the row is locked) and ends before exclusion is given up, so that
// the sections of a strategy that excludes others never overlap. All times are monotonic.Now.
type Section struct{ arrived, entered, left int64 }

// Arrive begins to time a deduction.
func Arrive() Section { return Section{arrived: monotonic.Now()} }

// Enter marks the beginning of the critical section. Called again, it moves the beginning.
func (s *Section) Enter() { s.EnterAt(monotonic.Now()) }

// EnterAt is Enter with a given time.
func (s *Section) EnterAt(now int64) { s.entered = now }

// Leave marks the end of the critical section. Without Leave, the section has no length: it lies inside one statement
// or script, and only the time of its reply is known.
func (s *Section) Leave() { s.left = monotonic.Now() }

// Elapsed is the time since the deduction arrived.
func (s *Section) Elapsed() time.Duration { return time.Duration(monotonic.Now() - s.arrived) }

// Receipt confirms a deduction with the section's times.
func (s *Section) Receipt(remaining int64, attempts int) Receipt {
	left := max(s.left, s.entered)
	return Receipt{
		Remaining: remaining,
		Attempts:  attempts,
		Waited:    time.Duration(s.entered - s.arrived),
		Held:      time.Duration(left - s.entered),
		Entered:   s.entered,
		Left:      left,
	}
}

// OrderReceipt confirms an order with the section's times.
func (s *Section) OrderReceipt(lines []LineReceipt) OrderReceipt {
	return OrderReceipt{Receipt: s.Receipt(0, 1), Lines: lines}
}
