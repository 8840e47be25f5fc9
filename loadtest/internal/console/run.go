package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// runRequest is what the page asks to run. Its fields are flags of "loadtest run", which checks them.
type runRequest struct {
	Strategies []string `json:"strategies"`
	Users      int      `json:"users"`
	HoldMS     int64    `json:"hold_ms"`
	Workload   string   `json:"workload"` // empty: both
	Requests   int      `json:"requests"`
	Rounds     int      `json:"rounds"`
	Items      int      `json:"items"`
}

// maxItems is so small that the stock of all items can be read several times a second.
const maxItems = 100

// flags returns what the command takes for the same.
func (r runRequest) flags() ([]string, error) {
	switch {
	case len(r.Strategies) == 0:
		return nil, malformed("choose at least one strategy")
	case slices.ContainsFunc(r.Strategies, func(name string) bool { return strings.ContainsAny(name, ", \t\n\"") }):
		return nil, malformed("the name of a strategy has neither spaces nor commas")
	case r.Items > maxItems:
		return nil, malformed("%d items: the page can show at most %d", r.Items, maxItems)
	}
	flags := []string{
		"--strategies=" + strings.Join(r.Strategies, ","),
		fmt.Sprintf("--users=%d", r.Users),
		fmt.Sprintf("--requests=%d", r.Requests),
		fmt.Sprintf("--rounds=%d", r.Rounds),
	}
	if r.HoldMS != 0 {
		flags = append(flags, fmt.Sprintf("--hold=%dms", r.HoldMS))
	}
	if r.Workload != "" {
		flags = append(flags, "--workload="+r.Workload)
	}
	if r.Items != 1 {
		flags = append(flags, fmt.Sprintf("--goods=%d", r.Items))
	}
	return append(flags, "--play-faults=false"), nil
}

func (c *Console) postRun(_ *http.Request, body runRequest) error {
	flags, err := body.flags()
	if err != nil {
		return err
	}
	for _, replica := range c.lab.Topology.Replicas {
		if state := replica.State(); state != topology.Running {
			return conflict("%s is %s, and a run needs every replica: start the lab again", replica.Name, state)
		}
	}
	a, err := c.begin("run")
	if err != nil {
		return err
	}
	m := &measuring{console: c, users: body.Users}
	run, err := c.options.NewRun(a.ctx, flags, m.next)
	if err != nil {
		c.end(a)
		return malformed("%v", err)
	}
	c.board.update(func(s *State) {
		s.Busy = a.kind
		s.Run = &RunState{
			ID: a.id, Command: c.options.Command + " " + strings.Join(flags, " "), Phase: "starting",
			Rows: []CellRow{}, Problems: []string{},
		}
	})
	c.tasks.Go(func() {
		defer c.end(a)
		m.run = run
		m.measure(a.ctx)
	})
	return nil
}

// measuring is a run that goes on.
type measuring struct {
	console *Console
	users   int
	run     *lab.Run
	cell    atomic.Pointer[watcher] // of the current cell; nil before the first

	mu     sync.Mutex // guards what follows
	shown  *watcher   // the cell that the page shows; nil before the first
	live   *CellLive
	lastNS int64 // until then, sections were looked at
}

// next begins to watch a cell.
func (m *measuring) next(header history.Run) func(*history.Op) {
	// Some workloads bring their own number of users.
	w := newWatcher(header, max(m.users, 256))
	m.cell.Store(w)
	return w.watch
}

// measure runs everything, and writes the report.
func (m *measuring) measure(ctx context.Context) {
	c, run := m.console, m.run
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan struct{})
	go func() { m.sample(sampling); close(sampled) }()
	failure := run.Measure(ctx, func(h *history.History, round report.Cell) {
		row := cellRow(h, round)
		m.look(ctx, h.End)
		c.board.update(func(s *State) { s.Run.Rows = append(slices.Clip(s.Run.Rows), row) })
	})
	stop()
	<-sampled
	result, err := lab.Finish(ctx, run.Builder, run.Dir, failure)
	address := ""
	if err == nil {
		address = c.addReport(run.Dir)
	}
	c.board.update(func(s *State) {
		s.Run.Ended, s.Run.Report, s.Run.Problems = true, address, result.Problems
		switch {
		case ctx.Err() != nil:
			s.Run.Result = "canceled"
		case err != nil:
			s.Run.Result, s.Run.Problems = "ended early", append([]string{err.Error()}, result.Problems...)
		case failure != nil:
			s.Run.Result = "ended early" // the problems say why
		case result.Err() == nil:
			s.Run.Result = "held"
		case result.ClaimFailed:
			s.Run.Result = "failed"
		default:
			s.Run.Result = "inconclusive"
		}
	})
}

// cellRow describes a cell that was judged.
func cellRow(h *history.History, round report.Cell) CellRow {
	row := CellRow{Name: cellName(h.Run), Result: round.Word(h.Run), Goodput: round.GoodputPerS}
	switch row.Result {
	case report.Baseline:
		row.Goodput = round.ThroughputPerS
	case report.LateLosesUpdate:
		row.Evidence = report.ClaimedOnly + "; " + report.CorrectUnderLoad
	}
	if len(round.Evidence) > 0 {
		row.Evidence = round.Evidence[0]
	}
	return row
}

func cellName(run history.Run) string {
	name := fmt.Sprintf("%s, %s", run.Strategy, run.Workload.Name)
	if run.Replicas == 1 {
		name += ", 1 replica"
	}
	if run.Round > 1 {
		name += fmt.Sprintf(", round %d", run.Round)
	}
	return name
}

const (
	sampleInterval = 250 * time.Millisecond
	// maxSamples is how many samples the page shows: the last minute.
	maxSamples = 240
)

// sample shows how far the run is, until ctx ends.
func (m *measuring) sample(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.look(ctx, nil)
		case <-ctx.Done():
			return
		}
	}
}

// look shows how far the run is. At the end of a cell, end says when its last answer came.
func (m *measuring) look(ctx context.Context, end *history.End) {
	m.mu.Lock()
	defer m.mu.Unlock()
	progress := m.run.Runner.Progress()
	// The baseline has no stock and no sections: the cell before it stays on the page.
	now := m.cell.Load()
	if now != m.shown && now.header.Claim != verify.ClaimSellsNothing {
		m.shown, m.live, m.lastNS = now, m.newCell(now.header), 0
		for _, units := range now.header.Initial {
			m.live.Before += units
		}
	}
	if m.shown != nil && m.shown == now {
		m.live.Requests = progress.Requests
		took := time.Since(now.began)
		if end != nil {
			took = time.Duration(end.EndedNS - end.StartedNS)
		}
		m.addSample(ctx, took)
	}
	m.console.board.update(func(s *State) {
		s.Run.Phase, s.Run.Done, s.Run.Cells = progress.Phase, progress.Done, progress.Cells
		s.Run.LeftS, s.Run.Cell = seconds(progress.Left), m.live.copied()
	})
}

// newCell describes a cell that begins.
func (m *measuring) newCell(header history.Run) *CellLive {
	strategy, _ := m.console.strategy(header.Strategy)
	return &CellLive{
		Name: cellName(header), Samples: []Sample{}, Sections: []Section{}, Behind: strategy.WriteBehind,
		Allowed: !header.Exclusive && header.Claim == verify.ClaimCorrect,
	}
}

// copied returns a copy that does not change.
func (l *CellLive) copied() *CellLive {
	if l == nil {
		return nil
	}
	live := *l
	live.Samples = slices.Clone(l.Samples)
	return &live
}

// addSample looks at the cell that is shown. took is the time since its load began.
func (m *measuring) addSample(ctx context.Context, took time.Duration) {
	live, w, nowNS := m.live, m.shown, monotonic.Now()
	s := Sample{AtS: took.Round(time.Millisecond).Seconds()} // for a rate, more exact than seconds
	var sections []span
	s.Answered, s.Sold, sections = w.sums(m.lastNS)
	s.Inside = together(sections)
	if units, err := m.stock(ctx, w.header); err == nil {
		gone := live.Before - units
		s.Gone = &gone
	}
	m.lastNS = nowNS
	inside := s.Inside
	if shown := live.add(s); len(sections) > 0 && inside == shown {
		live.Sections = forPage(sections)
	}
}

// stock reads the units of all items from the store that decides the verdict.
func (m *measuring) stock(ctx context.Context, header history.Run) (units int64, err error) {
	store := header.Store
	if strategy, _ := m.console.strategy(header.Strategy); strategy.WriteBehind {
		store = oracle.MySQL
	}
	var items []int64
	for item := range header.Initial {
		items = append(items, item)
	}
	stock, err := m.console.lab.Target.Oracle.Stock(ctx, store, items)
	for _, n := range stock {
		units += n
	}
	return units, err
}
