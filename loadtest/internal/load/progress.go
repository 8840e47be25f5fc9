package load

import (
	"fmt"
	"time"

	"stock/internal/stats"
)

// Progress is how far a Runner is.
type Progress struct {
	Phase    string        // what the runner is doing, for display
	Done     int           // cells
	Cells    int           // in all; 0: unknown
	Answered int64         // requests of the current cell
	Requests int           // of the current cell; 0: unknown
	Left     time.Duration // estimated
	at       time.Time     // of the estimate
}

// Heading returns the progress without the requests: [ 3/72, 4:10 left] update, plenty, 2 replicas. If it is not known
// how many cells there will be: [3 runs, 4:10 left].
func (p Progress) Heading() string {
	left := p.Left.Round(time.Second)
	done := fmt.Sprintf("%d runs", p.Done)
	if p.Cells > 0 {
		done = fmt.Sprintf("%*d/%d", len(fmt.Sprint(p.Cells)), p.Done, p.Cells)
	}
	return fmt.Sprintf("[%s, %d:%02d left] %s", done, int(left.Minutes()), int(left.Seconds())%60, p.Phase)
}

// String returns the heading and the number of answered requests.
func (p Progress) String() string {
	if p.Requests == 0 {
		return fmt.Sprintf("%s  %s", p.Heading(), stats.Grouped(p.Answered))
	}
	return fmt.Sprintf("%s  %s of %s", p.Heading(), stats.Grouped(p.Answered), stats.Grouped(p.Requests))
}

// cells returns how many cells there will be, or 0 if that depends on what is measured.
func (r *Runner) cells() int {
	if r.config.Rounds == 0 {
		return 0
	}
	return len(r.judged) + len(r.rows)*r.config.Rounds
}

// Progress may be called at any time.
func (r *Runner) Progress() Progress {
	p := r.progress.Load()
	if p == nil {
		return Progress{Phase: "starting", Cells: r.cells()}
	}
	now := *p
	now.Answered = r.answered.Load()
	now.Left = max(now.Left-time.Since(now.at), 0)
	return now
}

// showProgress starts a new phase, of which the caller gives what is known.
func (r *Runner) showProgress(p Progress) {
	p.Cells, p.at = r.cells(), time.Now()
	r.answered.Store(0)
	r.progress.Store(&p)
}
