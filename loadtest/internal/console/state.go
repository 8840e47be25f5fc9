package console

import (
	"encoding/json"
	"sync"
	"time"

	"stock/loadtest/internal/fault"
)

// State is everything that the page shows. Every tab gets all of it, so all tabs show the same.
type State struct {
	ID       string        `json:"id"`   // of this console: a tab that was open before it reloads
	Busy     string        `json:"busy"` // "run", "fault", "exploration", or empty
	Run      *RunState     `json:"run"`  // the last one; nil before the first
	Fault    *FaultState   `json:"fault"`
	Explored *ExploreState `json:"explored"`
}

// RunState is a run and how far it is.
type RunState struct {
	ID       int       `json:"id"`      // of the activity
	Command  string    `json:"command"` // that does the same in a terminal
	Phase    string    `json:"phase"`
	Done     int       `json:"done"`  // cells
	Cells    int       `json:"cells"` // 0: unknown
	LeftS    float64   `json:"left_s"`
	Cell     *CellLive `json:"cell"` // nil during the warm-up
	Rows     []CellRow `json:"rows"` // the cells that were judged
	Ended    bool      `json:"ended"`
	Result   string    `json:"result"`   // "held", "failed", "inconclusive", "canceled" or "ended early"
	Problems []string  `json:"problems"` // what did not hold
	Report   string    `json:"report"`   // address; empty: there is none
}

// CellLive is the cell whose load is being sent.
type CellLive struct {
	Name     string    `json:"name"`
	Before   int64     `json:"before"`   // units before the first request
	Requests int       `json:"requests"` // that will be sent; 0: unknown
	Samples  []Sample  `json:"samples"`
	Sections []Section `json:"sections"` // of the last moment
	Most     int       `json:"most"`     // the most requests that were seen together in the critical section of an item
	// Allowed is set if sections may overlap: the store, or a check before the write, finds conflicts.
	Allowed bool `json:"allowed"`
	// Behind is set if MySQL, from which the stock is read, gets the sales later.
	Behind bool `json:"behind"`
}

// Sample is what is known at one time of a cell.
type Sample struct {
	AtS      float64 `json:"at_s"`     // since the beginning of the cell
	Answered int64   `json:"answered"` // requests
	Sold     int64   `json:"sold"`     // units, as clients were told
	Gone     *int64  `json:"gone"`     // units that have left the stock; nil: it could not be read
	PerS     float64 `json:"per_s"`    // units sold in a second, since the sample before or the beginning of the cell
	Inside   int     `json:"inside"`   // the most requests seen together in the critical section of an item, since then
}

// Section is a critical section, in ms before the newest one ended.
type Section struct {
	Replica string  `json:"replica"`
	Item    int64   `json:"item"`
	Entered float64 `json:"entered"`
	Left    float64 `json:"left"`
}

// CellRow is a cell that was judged.
type CellRow struct {
	Name     string  `json:"name"`
	Result   string  `json:"result"` // see report.Cell.Word
	Evidence string  `json:"evidence"`
	Goodput  float64 `json:"goodput"` // units a second
}

// FaultState is a fault and how far it is.
type FaultState struct {
	ID        int          `json:"id"` // of the activity
	Scenario  string       `json:"scenario"`
	Title     string       `json:"title"`
	Strategy  string       `json:"strategy"`
	Store     string       `json:"store"` // in which the strategy sells
	Steps     []FaultStep  `json:"steps"`
	More      int          `json:"more"`    // steps that are not shown any more
	Now       *fault.Scene `json:"now"`     // nil before the first step and after the last
	Waiting   bool         `json:"waiting"` // for Next
	Free      bool         `json:"free"`    // it runs to its end
	Ended     bool         `json:"ended"`
	Outcome   string       `json:"outcome"` // in words; "canceled" if it was
	Proof     string       `json:"proof"`
	Evidence  []string     `json:"evidence"`
	Claimed   string       `json:"claimed"`
	ClaimHeld bool         `json:"claim_held"`
	ReadS     float64      `json:"read_s"` // how long the fault waited for Next
	Replay    string       `json:"replay"` // the command that plays it in a terminal
	Report    string       `json:"report"` // address; empty: there is none
}

// FaultStep is a step that was played, and what was to be seen then.
type FaultStep struct {
	AfterS float64     `json:"after_s"`
	Kind   string      `json:"kind"` // see report.StepKind
	Text   string      `json:"text"`
	Scene  fault.Scene `json:"scene"`
}

// ExploreState is an exploration and how far it is.
type ExploreState struct {
	ID        int           `json:"id"`      // of the activity
	Subject   string        `json:"subject"` // strategy, or file of a script
	Command   string        `json:"command"` // that does the same in a terminal
	Phase     string        `json:"phase"`
	Schedules int           `json:"schedules"`
	Cells     []ExploreCell `json:"cells"`
	Traces    []TraceRef    `json:"traces"` // the shortest so far
	Ended     bool          `json:"ended"`
	Result    string        `json:"result"`  // "held", "refuted", "inconclusive", "canceled" or "failed"
	State     string        `json:"state"`   // whether all schedules were executed
	Problem   string        `json:"problem"` // why it failed
	Report    string        `json:"report"`  // address; empty: there is none
}

// ExploreCell is what came of the schedules in which a fault strikes.
type ExploreCell struct {
	Name      string `json:"name"`
	Found     string `json:"found"`
	Schedules int    `json:"schedules"`
	Damaged   int    `json:"damaged"`
	Verdict   string `json:"verdict"` // empty: nothing is claimed
	Held      bool   `json:"held"`
}

// TraceRef is a trace that can be opened.
type TraceRef struct {
	ID    int    `json:"id"`
	Name  string `json:"name"` // of the fault
	Kind  string `json:"kind"` // of damage
	Steps int    `json:"steps"`
}

// board holds the State and tells those who watch it when it changes.
type board struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed at the next change
}

func newBoard(s State) *board { return &board{state: s, changed: make(chan struct{})} }

// update changes the state.
func (b *board) update(change func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
	close(b.changed)
	b.changed = make(chan struct{})
}

// encoded returns the state as JSON, and a channel that is closed when it has changed.
func (b *board) encoded() (text []byte, changed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, err = json.Marshal(b.state)
	return text, b.changed, err
}

// seconds rounds a duration for the page.
func seconds(d time.Duration) float64 { return d.Round(10 * time.Millisecond).Seconds() }
