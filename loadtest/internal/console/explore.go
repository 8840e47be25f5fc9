package console

import (
	"context"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/page"
	"stock/loadtest/internal/report"
	"stock/loadtest/scripts"
)

// exploreRequest is what the page asks to explore: a strategy, or a script.
type exploreRequest struct {
	Strategy    string `json:"strategy"`
	Script      string `json:"script"` // the text; empty: the strategy
	File        string `json:"file"`   // the name of the script
	Preemptions int    `json:"preemptions"`
	Faults      int    `json:"faults"`
}

const (
	// exploreLanes is how many schedules are executed side by side: a browser runs beside them.
	exploreLanes = 2
	// maxPreemptions and maxFaults are the largest bounds of the page.
	maxPreemptions, maxFaults = 3, 1
	// ownFile is the name of a script that is none of the gallery's.
	ownFile = "mine.star"
)

// searching is an exploration that goes on.
type searching struct {
	console  *Console
	activity *activity
	bounds   trace.Bounds
	choice   load.Choice
	script   *explore.Script   // nil: the choice is explored
	tokens   map[string]string // of the traces that the page shows, by fault and kind
}

// search checks what is asked for.
func (c *Console) search(body exploreRequest) (*searching, error) {
	s := &searching{console: c, bounds: trace.Bounds{Preemptions: body.Preemptions, Faults: body.Faults}}
	switch {
	case body.Preemptions < 0 || body.Preemptions > maxPreemptions:
		return nil, malformed("%d preemptions: a number from 0 to %d is needed", body.Preemptions, maxPreemptions)
	case body.Faults < 0 || body.Faults > maxFaults:
		return nil, malformed("%d faults: a number from 0 to %d is needed", body.Faults, maxFaults)
	}
	if body.Script != "" {
		if _, err := fs.Stat(scripts.Files, body.File); err != nil {
			body.File = ownFile
		}
		var err error
		if s.script, err = explore.LoadScript(body.File, []byte(body.Script), 2); err != nil {
			return nil, malformed("%v", err)
		}
		return s, nil
	}
	strategy, known := c.strategy(body.Strategy)
	switch {
	case !known || strategy.Baseline() || len(strategy.Stores) == 0:
		return nil, malformed("no strategy that can be explored is named %q", body.Strategy)
	case explore.Obstacle(strategy) != "":
		return nil, conflict("%s cannot be explored: %s", strategy.Name, explore.Obstacle(strategy))
	}
	s.choice = load.Choice{Strategy: strategy, Store: strategy.Stores[0]}
	return s, nil
}

// subject names what is explored.
func (s *searching) subject() string {
	if s.script != nil {
		return s.script.File
	}
	return s.choice.Strategy.Name
}

// command does the same in a terminal.
func (s *searching) command() string {
	flags := fmt.Sprintf(" --preemptions %d --faults %d", s.bounds.Preemptions, s.bounds.Faults)
	switch {
	case s.script != nil && s.script.File == ownFile:
		return exploreCommand + flags + " " + ownFile // where the user has saved it
	case s.script != nil:
		return exploreCommand + flags + " loadtest/scripts/" + s.script.File
	}
	return exploreCommand + " --strategies " + s.choice.Strategy.Name + flags
}

const exploreCommand = "go run ./loadtest explore"

func (c *Console) postExplore(_ *http.Request, body exploreRequest) error {
	s, err := c.search(body)
	if err != nil {
		return err
	}
	a, err := c.begin("exploration")
	if err != nil {
		return err
	}
	s.activity, s.tokens = a, map[string]string{}
	c.mu.Lock()
	c.traces = map[int]template.HTML{}
	c.mu.Unlock()
	c.board.update(func(state *State) {
		state.Busy = a.kind
		state.Explored = &ExploreState{
			ID: a.id, Subject: s.subject(), Command: s.command(), Phase: "Starting servers and replicas for it…",
			Cells: []ExploreCell{}, Traces: []TraceRef{},
		}
	})
	c.tasks.Go(func() {
		defer c.end(a)
		s.run(a.ctx)
	})
	return nil
}

// run explores, and writes the report.
func (s *searching) run(ctx context.Context) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU())) // the proxies are part of what is explored
	r, failure := s.explore(ctx)
	s.show(r)
	address := ""
	if ctx.Err() == nil && failure == nil {
		if dir, removeIfEmpty, err := lab.CreateDir(""); err == nil {
			builder := report.NewBuilder(s.console.lab.Environment())
			builder.AddExplored(r)
			if _, err := lab.Finish(ctx, builder, dir, nil); err == nil {
				address = s.console.addReport(dir)
			}
			removeIfEmpty()
		}
	}
	s.console.board.update(func(state *State) {
		e := state.Explored
		e.Ended, e.Phase, e.Report = true, "", address
		switch {
		case ctx.Err() != nil:
			e.Result = "canceled"
		case failure != nil:
			e.Result, e.Problem = "failed", lab.WithoutLog(failure)
		case !r.Held():
			e.Result = "refuted"
		case !r.Judged():
			e.Result = "inconclusive"
		default:
			e.Result = "held"
		}
		if failure == nil {
			e.State = r.State()
		}
	})
}

// explore starts servers, explores, and stops them.
func (s *searching) explore(ctx context.Context) (r trace.Result, err error) {
	var x *explore.Explorer
	if s.script != nil {
		x, err = explore.StartScripts(ctx, exploreLanes, explore.MySQL)
	} else {
		x, err = explore.Start(ctx, s.console.lab.Topology, explore.Options{Lanes: exploreLanes, Requests: 2})
	}
	if err != nil {
		return r, err
	}
	defer x.Close()
	s.console.board.update(func(state *State) { state.Explored.Phase = "Searching…" })
	x.Watch = s.show
	if s.script != nil {
		return x.ExploreScript(ctx, s.script, s.bounds)
	}
	return x.Explore(ctx, s.choice, s.bounds)
}

// show shows what has been found so far.
func (s *searching) show(r trace.Result) {
	cells, traces := []ExploreCell{}, []TraceRef{}
	for _, c := range r.Cells {
		cells = append(cells, ExploreCell{
			Name: c.Name(), Found: c.Found(), Schedules: c.Schedules, Damaged: c.Damaged(), Verdict: c.Verdict(), Held: c.Held,
		})
		for _, kind := range c.Damages() {
			if t, err := s.trace(r, c, kind); err == nil {
				traces = append(traces, t)
			}
		}
	}
	s.console.board.update(func(state *State) {
		e := state.Explored
		e.Schedules, e.Cells, e.Traces = r.Tally.Schedules, cells, traces
	})
}

// trace makes a trace available, unless it is.
func (s *searching) trace(r trace.Result, c trace.Cell, kind string) (t TraceRef, err error) {
	t = TraceRef{Name: c.Name(), Kind: kind}
	for _, step := range c.Shortest[kind].Execution.Readable().Steps {
		if step.Shown() {
			t.Steps++
		}
	}
	key, token := t.Name+", "+kind, c.Shortest[kind].Token
	console := s.console
	console.mu.Lock()
	defer console.mu.Unlock()
	known, id, _ := strings.Cut(s.tokens[key], " ")
	if known == token {
		t.ID, err = strconv.Atoi(id)
		return t, err
	}
	t.ID = len(console.traces) + 1
	console.traces[t.ID], err = page.Trace(r, c, kind, fmt.Sprintf("trace-%d", t.ID))
	s.tokens[key] = fmt.Sprintf("%s %d", token, t.ID)
	return t, err
}

// getTrace sends a trace as a part of the page.
func (c *Console) getTrace(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.PathValue("id"))
	c.mu.Lock()
	trace, known := c.traces[id]
	c.mu.Unlock()
	if !known {
		fail(w, refused{http.StatusNotFound, "this lab has no such trace"})
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(trace))
}

// galleryScript is a script of the gallery as the script of the page knows it.
type galleryScript struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// gallery lists the scripts.
func gallery() (list []galleryScript, err error) {
	err = fs.WalkDir(scripts.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(scripts.Files, path)
		list = append(list, galleryScript{path, string(text)})
		return err
	})
	return list, err
}
