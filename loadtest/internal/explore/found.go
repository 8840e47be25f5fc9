package explore

import "stock/loadtest/internal/explore/trace"

// What is found is in a package of its own, so that reports and pages need nothing else.
type (
	Result   = trace.Result
	Cell     = trace.Cell
	Workload = trace.Workload
	Schedule = trace.Schedule
	Bounds   = trace.Bounds
	Tally    = trace.Tally
	Outcome  = trace.Outcome
	Step     = trace.Step
	Kind     = trace.Kind
)

// Kinds of Step.
const (
	Executes = trace.Executes
	Polls    = trace.Polls
	Waits    = trace.Waits
	Resumes  = trace.Resumes
	Strikes  = trace.Strikes
	Answers  = trace.Answers
	Passes   = trace.Passes
	TimeGoes = trace.TimeGoes
	Stuck    = trace.Stuck
)

// Kinds of Outcome.
const (
	Right      = trace.Right
	LostUpdate = trace.LostUpdate
	Oversold   = trace.Oversold
	Undersold  = trace.Undersold
	Leaked     = trace.Leaked
	SoldTwice  = trace.SoldTwice
	InPart     = trace.InPart
	OverLimit  = trace.OverLimit
	UnderLimit = trace.UnderLimit
	Different  = trace.Different
	EndedTwice = trace.EndedTwice
	EndedLate  = trace.EndedLate
	EndedEarly = trace.EndedEarly
	NoSuchHold = trace.NoSuchHold
	LedgerGap  = trace.LedgerGap
	Overlap    = trace.Overlap
	SellsMore  = trace.SellsMore
	SellsLess  = trace.SellsLess
	OtherWrong = trace.OtherWrong
	NotServed  = trace.NotServed
	Deadlock   = trace.Deadlock
	Unjudged   = trace.Unjudged
)
