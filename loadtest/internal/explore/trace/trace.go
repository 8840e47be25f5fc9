// Package trace is what an exploration found: schedules by what came of them, and the shortest of each kind of damage,
// in columns and as text that a person can type into terminals.
package trace

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Result is what the exploration of a strategy found.
type Result struct {
	Strategy   string        `json:"strategy"`
	Store      string        `json:"store"`
	OtherStore bool          `json:"other_store,omitempty"` // than the default one of the strategy
	Own        bool          `json:"own,omitempty"`         // Strategy is the command or the file of the user's
	File       string        `json:"file,omitempty"`        // that describes the user's service; empty: there is none
	Tally      Tally         `json:"tally"`
	Exhausted  bool          `json:"exhausted"`
	Random     bool          `json:"random,omitempty"` // schedules were chosen at random
	Cells      []Cell        `json:"cells"`
	Workloads  []Workload    `json:"workloads"`
	Requests   int           `json:"requests"` // of a schedule, at most
	Bounds     Bounds        `json:"bounds"`
	Took       time.Duration `json:"took_ns"`
}

// Cell is what the schedules of a strategy led to in which one fault struck, or none.
type Cell struct {
	Fault string `json:"fault"` // the names of the faults, joined by "+"; empty: none
	// Requests is what was asked for, if the claim is about that.
	Requests  string              `json:"requests,omitempty"`
	Schedules int                 `json:"schedules"`
	Kinds     map[string]int      `json:"kinds"`    // schedules by kind of outcome
	Shortest  map[string]Schedule `json:"shortest"` // for each kind but Right
	Waited    int                 `json:"waited"`   // schedules in which nobody could go on until a lease had ended
	Claim     string              `json:"claim"`    // what the catalogue says about it, in words; empty: nothing
	Held      bool                `json:"claim_held"`
	Shown     bool                `json:"claim_shown,omitempty"` // the claim is one of damage, which was found
}

// Workload is what the schedules of a search asked for.
type Workload struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// Held reports whether no claim is refuted.
func (r Result) Held() bool {
	return !slices.ContainsFunc(r.Cells, func(c Cell) bool { return !c.Held })
}

// Judged reports whether every schedule within the bounds was executed, unless some were chosen at random, and judged.
func (r Result) Judged() bool {
	return (r.Exhausted || r.Random) && r.NotJudged() == 0
}

// NotJudged counts the schedules that matter and could not be executed, or judged.
func (r Result) NotJudged() (n int) {
	for _, c := range r.Cells {
		if !c.Judged() {
			n += c.Kinds[Unjudged]
		}
	}
	return n + r.Tally.Diverged
}

// Judged reports whether all schedules were judged that matter: none does any more where the claimed damage was found.
func (c Cell) Judged() bool { return c.Shown || c.Kinds[Unjudged] == 0 }

// Damaged reports whether a schedule did damage in which a fault struck, or none.
func (r Result) Damaged(fault bool) bool {
	return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Damaged() > 0 && (c.Fault != "") == fault })
}

// Damaged counts the schedules that did damage.
func (c Cell) Damaged() int { return c.Schedules - c.Kinds[Right] - c.Kinds[Unjudged] }

// Damages lists the kinds of outcomes of which there is a shortest schedule.
func (c Cell) Damages() []string { return slices.Sorted(maps.Keys(c.Shortest)) }

// Bounds limit a search.
type Bounds struct {
	Preemptions int `json:"preemptions"` // the most in one schedule; negative: no limit
	Faults      int `json:"faults"`      // the most in one schedule
	// NoReduction: also execute schedules that differ only in the order of steps that commute.
	NoReduction bool `json:"no_reduction,omitempty"`

	Random bool `json:"-"` // execute schedules at random instead of all
	// Seed: the same one leads to the same schedules, of which more are executed in more time.
	Seed     uint64        `json:"seed,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"` // of the search, if it is random
}

// Effective returns the bounds without what has no effect.
func (b Bounds) Effective() Bounds {
	if !b.Random {
		b.Seed, b.Duration = 0, 0
	}
	return b
}

// Schedule is one that was executed.
type Schedule struct {
	Token       string    `json:"token"` // replays it
	Preemptions int       `json:"preemptions"`
	Faults      int       `json:"faults"`
	Execution   Execution `json:"outcome"`
}

// Tally counts what a search did.
type Tally struct {
	Schedules int `json:"schedules"` // executed to their end
	Diverged  int `json:"diverged"`  // beginnings that two executions offered and none could repeat; or not set up
	Waiting   int `json:"waiting"`   // not executed: the search was interrupted
	Settled   int `json:"settled"`   // beginnings that were not needed any more; see Search.Settled
	// Example says what was different about one that diverged; empty if none has.
	Example string `json:"example,omitempty"`
}

// Add adds what another search did.
func (t *Tally) Add(o Tally) {
	t.Schedules += o.Schedules
	t.Diverged += o.Diverged
	t.Waiting += o.Waiting
	t.Settled += o.Settled
	t.Example = cmp.Or(t.Example, o.Example)
}

// Execution is what came of a schedule.
type Execution struct {
	Kind     string          `json:"kind"`               // see the constants
	Evidence []string        `json:"evidence,omitempty"` // why
	Faults   []string        `json:"faults,omitempty"`   // that struck
	Waited   bool            `json:"waited,omitempty"`   // nobody could go on until time had passed
	Workload string          `json:"workload"`
	Item     int64           `json:"item"`
	Stock    map[int64]int64 `json:"stock"` // units before the first step, by item
	Steps    []Step          `json:"steps"`
	// Timed says that time may have changed what came of it: another second began during the schedule, which took far
	// less than one, or it took so long that leases may have ended by themselves.
	Timed bool `json:"-"`
}

// Kinds of Outcome.
const (
	Right      = "right"
	LostUpdate = "lost update" // confirmed units are still in stock
	Oversold   = "oversold"
	Undersold  = "undersold" // a request was refused although there was stock for it
	Leaked     = "leaked"    // units are gone that nobody has bought
	SoldTwice  = "sold twice"
	InPart     = "order in part"
	Different  = "another answer on the retry"
	Overlap    = "critical sections overlap"
	SellsMore  = "more for sale than there is" // in the store that sells than in the one that is updated afterwards
	SellsLess  = "less for sale than there is"
	OtherWrong = "wrong"
	NotServed  = "nobody served" // everybody was told busy, although no fault struck
	Deadlock   = "stuck"
	Unjudged   = "not judged"
)

// Step is one line of a trace.
type Step struct {
	Actor string `json:"actor"` // empty: the step is none of an actor's
	Text  string `json:"text"`
	Reply string `json:"reply,omitempty"` // empty while the step waits, or if its reply is lost
	Kind  Kind   `json:"kind"`
	Fault string `json:"fault,omitempty"` // that strikes
	Store string `json:"store,omitempty"` // that executes it; empty: none
	Conn  int    `json:"conn,omitempty"`  // over which connection of the actor to the store, from 0
}

// Kind is what a Step is.
type Kind string

// The kinds of steps.
const (
	Executes Kind = "executes"
	Polls    Kind = "polls"    // executes again what has had the same reply since nobody else has changed anything
	Waits    Kind = "waits"    // in the store, from here to its reply
	Resumes  Kind = "resumes"  // the reply of a step that waited
	Strikes  Kind = "fault"    // a fault strikes
	Answers  Kind = "answers"  // the client gets its answer
	Passes   Kind = "passes"   // executed without a choice: nobody else can notice it
	TimeGoes Kind = "time"     // nobody can go on until a lease has ended
	Stuck    Kind = "deadlock" // nobody can go on
)

// Postgres is the Store of what PostgreSQL executes.
const Postgres = "postgres"

// ConnectionEnded is in place of a reply.
const ConnectionEnded = "the connection has ended"

// The faults after which the session of a person ends in another way than by dying.
const (
	LostRequest = "lost-request"
	LostReply   = "lost-reply"
)
