package report

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress says how far the lab is and how long it will take: one line that changes on a terminal, a line for each finished
// cell elsewhere. It may be used by several goroutines.
//
//	p := report.NewProgress(os.Stderr, cells)
//	p.Start("update, plenty, 2 replicas, round 1")
//	p.Done("CORRECT, 5 210 units/s")
//	p.Close()
type Progress struct {
	mu      sync.Mutex
	w       io.Writer
	live    bool
	now     func() time.Time
	began   time.Time
	total   int
	done    int
	current string
}

// NewProgress starts the clock for a number of cells. Whether w is a terminal decides how it is written.
func NewProgress(w io.Writer, total int) *Progress {
	return newProgress(w, total, Terminal(w), time.Now)
}

func newProgress(w io.Writer, total int, live bool, now func() time.Time) *Progress {
	return &Progress{w: w, live: live, now: now, began: now(), total: total}
}

// erase goes back to the start of the line and clears it.
const erase = "\r\x1b[K"

// Start names the cell that is being run.
func (p *Progress) Start(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = name
	if p.live {
		fmt.Fprintf(p.w, "%s[%d/%d] %s%s", erase, p.done+1, p.total, p.current, p.left())
	}
}

// Done ends the current cell with its result.
func (p *Progress) Done(result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.live {
		fmt.Fprintf(p.w, "%s[%d/%d] %s: %s%s", erase, p.done, p.total, p.current, result, p.left())
		return
	}
	fmt.Fprintf(p.w, "[%d/%d] %s: %s%s\n", p.done, p.total, p.current, result, p.left())
}

// Say writes a line of its own, which stays.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		fmt.Fprint(p.w, erase)
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Close leaves the terminal's line free for what comes next.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		fmt.Fprint(p.w, erase)
	}
}

// left estimates the time left: the cells to come take as long as those before them, on average.
func (p *Progress) left() string {
	if p.done == 0 || p.done >= p.total {
		return ""
	}
	took := p.now().Sub(p.began)
	left := took / time.Duration(p.done) * time.Duration(p.total-p.done)
	return fmt.Sprintf(" (%v left)", left.Round(time.Second))
}
