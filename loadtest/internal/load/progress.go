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
	Cells    int           // in all
	Answered int64         // requests of the current cell
	Requests int           // of the current cell; 0: unknown
	Left     time.Duration // if the other cells take as long as those that are done; 0: unknown
	at       time.Time     // of the estimate
}

// Heading returns the progress without the requests: [ 3/72, 4:10 left] update, plenty, 2 replicas.
func (p Progress) Heading() string {
	done := fmt.Sprintf("%*d/%d", len(fmt.Sprint(p.Cells)), p.Done, p.Cells)
	if left := p.Left.Round(time.Second); left > 0 {
		done += fmt.Sprintf(", %d:%02d left", int(left.Minutes()), int(left.Seconds())%60)
	}
	return fmt.Sprintf("[%s] %s", done, p.Phase)
}

// String returns the heading and the number of answered requests.
func (p Progress) String() string {
	if p.Requests == 0 {
		return fmt.Sprintf("%s  %s", p.Heading(), stats.Grouped(p.Answered))
	}
	return fmt.Sprintf("%s  %s of %s", p.Heading(), stats.Grouped(p.Answered), stats.Grouped(p.Requests))
}

// Progress may be called at any time.
func (r *Runner) Progress() Progress {
	p := r.progress.Load()
	if p == nil {
		return Progress{Phase: "starting", Cells: len(r.plan)}
	}
	now := *p
	now.Answered = r.answered.Load()
	now.Left = max(now.Left-time.Since(now.at), 0)
	return now
}

// showProgress starts a new phase, of which the caller gives what is known.
func (r *Runner) showProgress(p Progress) {
	p.Cells, p.at = len(r.plan), time.Now()
	if p.Done > 0 {
		p.Left = p.at.Sub(r.began) / time.Duration(p.Done) * time.Duration(p.Cells-p.Done)
	}
	r.answered.Store(0)
	r.progress.Store(&p)
}
