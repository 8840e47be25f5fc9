// Package console serves the lab in the browser: a page on which a person runs strategies, steps through fault
// scenarios, and explores strategies and scripts, without flags.
//
// It uses the runner, the judge, the scenarios and the reports of the commands. It only keeps a State, which every tab
// gets by server-sent events, and at most one activity: a run, a fault or an exploration. Closing a tab ends nothing.
// Stop ends everything.
package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
)

// Options configure Start.
type Options struct {
	Lab *lab.Lab // with a topology
	// NewRun prepares what "loadtest run" does with the given flags, on Lab. watch is the Config.Watch of the run.
	NewRun func(ctx context.Context, flags []string, watch func(history.Run) func(*history.Op)) (*lab.Run, error)
	// Command is the beginning of a command that runs strategies on such a lab.
	Command string
	// CommandNote is what a person must do before the command; empty: nothing.
	CommandNote string
}

// Console serves the page.
type Console struct {
	id        string
	options   Options
	lab       *lab.Lab
	faults    *fault.Player
	catalogue []load.Strategy
	server    *http.Server
	page      []byte
	policy    string // the Content-Security-Policy of the page
	address   string // host:port

	ctx   context.Context // ends with the console
	stop  context.CancelFunc
	tasks sync.WaitGroup // what goes on in the background
	board *board

	mu      sync.Mutex // guards what follows
	current *activity
	reports map[string]string     // directory of each report, by its name
	traces  map[int]template.HTML // of the last exploration, by number
	begun   int                   // activities
}

// Listen opens a port for the console. Only a loopback address is permitted: whoever can reach the console controls the
// lab.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s is not a loopback address: whoever reaches the console controls the lab", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() { // the name may stand for another address
		return nil, errors.Join(fmt.Errorf("%s is not a loopback address", address), listener.Close())
	}
	return listener, nil
}

// Start serves the console on a listener until Stop, which also closes the listener.
func Start(ctx context.Context, listener net.Listener, o Options) (*Console, error) {
	catalogue, err := o.Lab.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	c := &Console{
		options:   o,
		lab:       o.Lab,
		faults:    &fault.Player{Topology: o.Lab.Topology, Oracle: o.Lab.Target.Oracle, Reading: true},
		catalogue: catalogue,
		address:   listener.Addr().String(),
		board:     newBoard(State{ID: rand.Text()}),
		reports:   map[string]string{},
	}
	c.id = c.board.state.ID
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.render(); err != nil {
		return nil, err
	}
	c.server = &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return c.ctx },
	}
	c.tasks.Go(func() { _ = c.server.Serve(listener) }) // returns ErrServerClosed after Stop
	return c, nil
}

// URL is the address of the page.
func (c *Console) URL() string { return "http://" + c.address + "/" }

// Stop ends what goes on, and waits until it has ended.
func (c *Console) Stop(ctx context.Context) error {
	c.stop()
	err := c.server.Shutdown(ctx)
	ended := make(chan struct{})
	go func() { c.tasks.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("the console has not ended: %w", ctx.Err()))
	}
	return errors.Join(err, c.server.Close())
}

// activity is a run, a fault or an exploration.
type activity struct {
	id     int    // numbered from 1
	kind   string // "run", "fault" or "exploration"
	ctx    context.Context
	cancel context.CancelFunc
	gate   *gate // of a fault
}

// begin begins an activity, unless one is going on. The caller calls end when it has ended.
func (c *Console) begin(kind string) (*activity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.current != nil:
		return nil, conflict("%s is going on: wait for its end, or cancel it", withArticle(c.current.kind))
	case c.ctx.Err() != nil:
		return nil, conflict("the lab is being stopped")
	}
	c.begun++
	a := &activity{id: c.begun, kind: kind, gate: newGate()}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	c.current = a
	return a, nil
}

func withArticle(kind string) string {
	if kind == "exploration" {
		return "an " + kind
	}
	return "a " + kind
}

func (c *Console) end(a *activity) {
	a.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	c.board.update(func(s *State) { s.Busy = "" }) // before another one begins
}

// going returns the activity that goes on. It must be of this kind, if one is given, and the one that the page shows:
// a press in another tab may come too late.
func (c *Console) going(kind string, id int) (*activity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.current == nil || kind != "" && c.current.kind != kind:
		return nil, conflict("no %s is going on", cmp.Or(kind, "run, fault or exploration"))
	case c.current.id != id:
		return nil, conflict("number %d is not going on: number %d is, %s", id, c.current.id, withArticle(c.current.kind))
	}
	return c.current, nil
}

// strategy returns a row of the catalogue.
func (c *Console) strategy(name string) (load.Strategy, bool) {
	i := slices.IndexFunc(c.catalogue, func(s load.Strategy) bool { return s.Name == name })
	if i < 0 {
		return load.Strategy{}, false
	}
	return c.catalogue[i], true
}
