// Package timeline puts the critical sections of a history on a time axis: who was inside, when, and what was read and
// written there. A Window is plain data, which the page of a report draws.
package timeline

// Window is a part of the history of one item. Times are nanoseconds since Origin.
type Window struct {
	Title  string `json:"title"`
	Item   int64  `json:"item"`
	Round  int    `json:"round,omitempty"` // 0 in a fault scenario
	Origin int64  `json:"origin_ns"`       // on the clock of the history; in a fault scenario, when it began
	// The window is from From to To. Sections that are open then may begin earlier or end later.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to"`
	// Of is the number of sections in the whole history. Omitted is the number of those that the window of a fault
	// scenario leaves out, because there are too many.
	Of      int `json:"of"`
	Omitted int `json:"omitted,omitempty"`
	// Requests reports that the strategy records no critical sections: the sections are the times from sending a request
	// to its answer.
	Requests bool `json:"requests,omitempty"`
	// Allowed reports that overlaps are no fault here: the strategy detects a conflict when it writes, or leaves it to
	// the store.
	Allowed bool `json:"allowed,omitempty"`

	Lanes    []Lane    `json:"lanes"`
	Sections []Section `json:"sections"` // by start
	Findings []Finding `json:"findings,omitempty"`
	Shaded   []Shade   `json:"shaded,omitempty"`
}

// Lane is a line of the picture. Its sections do not overlap.
type Lane struct {
	Replica string `json:"replica"` // or Restocks or NoAnswer
}

// Lanes of what no replica is known for.
const (
	Restocks = "restock"
	NoAnswer = "no answer"
)

// Section is the time that a request spent in its critical section, or another time that Kind says.
type Section struct {
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Lane    int    `json:"lane"` // index in Lanes
	Kind    Kind   `json:"kind,omitempty"`
	Request string `json:"request,omitempty"`
	Before  *int64 `json:"before,omitempty"` // units read; nil if not known
	After   *int64 `json:"after,omitempty"`  // units written; nil if not known
	Count   int64  `json:"count,omitempty"`  // units asked for; 0 if it is what Before and After differ by
	Token   uint64 `json:"token,omitempty"`
	Outcome string `json:"outcome,omitempty"` // unless it was sold
	Overlap bool   `json:"overlap,omitempty"` // with another section of the item
	Flaw    Flaw   `json:"flaw,omitempty"`
}

// Kind says what a Section is.
type Kind string

// The kinds.
const (
	Inside  Kind = ""        // a critical section
	Request Kind = "request" // from sending a request to its answer; no critical section is on record
	PutBack Kind = "restock" // from sending a restock to its answer
)

// Flaw is what is wrong with the sale of a Section.
type Flaw string

// The flaws.
const (
	Lost     Flaw = "lost"     // another sale left the same stock: one of both is lost
	Twice    Flaw = "twice"    // its deduction was made more than once
	Oversold Flaw = "oversold" // it left fewer than no units
)

// Finding is what a person should look at first.
type Finding struct {
	Kind     string `json:"kind"`     // overlap, or a Flaw
	Text     string `json:"text"`     // what it is, in one sentence
	Start    int64  `json:"start"`    // of the overlap, or of the first section
	End      int64  `json:"end"`      // of the overlap, or of the first section
	Sections []int  `json:"sections"` // indexes in Window.Sections
}

// Overlap is the kind of a Finding that is not a Flaw.
const Overlap = "overlap"

// Shade is a time that is marked across all lanes.
type Shade struct {
	Start int64  `json:"start"`
	End   int64  `json:"end"`
	Text  string `json:"text"` // what happened at its start
	Sold  bool   `json:"sold"` // it ends with a sale; otherwise nothing was sold any more
}
