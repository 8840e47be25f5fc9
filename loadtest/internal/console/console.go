// Package console serves the lab in the browser: a page on which a person runs strategies, steps through fault
// scenarios, and breaks replicas, without flags.
//
// It uses the runner, the judge, the scenarios and the reports of the commands. It only keeps a State, which every tab
// gets by server-sent events, and at most one activity: a run, a story or an exploration. Closing a tab ends nothing.
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
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
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
	// Started is called when a replica was started again.
	Started func(*topology.Replica)
}

// Console serves the page.
type Console struct {
	id        string
	options   Options
	lab       *lab.Lab
	stories   *fault.Lab
	catalogue []scenario.Strategy
	viewer    *oracle.Viewer
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
	held    []*heldSale           // and not answered yet, the first one first
	reports map[string]string     // directory of each report, by its name
	traces  map[int]template.HTML // of the last exploration, by number
	begun   int                   // activities
	sales   int                   // how many were sent from the page
	waiting int                   // requests of the page that have no answer yet, and that the books of a run would lack

	breaking sync.Mutex // held while a replica is broken or mended
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
	t := o.Lab.Topology
	viewer, err := oracle.NewViewer(oracle.Config{
		MySQLDSN: t.MySQLDSN, Redis: t.Redis, Redlock: t.Redlock,
		Account: t.Account, KeyPrefix: t.KeyPrefix,
	})
	if err != nil {
		return nil, err
	}
	c := &Console{
		options:   o,
		lab:       o.Lab,
		stories:   &fault.Lab{Topology: t, Oracle: o.Lab.Target.Oracle, Reading: true},
		catalogue: catalogue,
		viewer:    viewer,
		address:   listener.Addr().String(),
		board:     newBoard(State{ID: rand.Text()}),
		reports:   map[string]string{},
	}
	c.id = c.board.state.ID
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.render(); err != nil {
		return nil, errors.Join(err, viewer.Close())
	}
	c.look(ctx)
	c.server = &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return c.ctx },
	}
	c.tasks.Go(func() { _ = c.server.Serve(listener) }) // returns ErrServerClosed after Stop
	c.tasks.Go(c.keepLooking)
	return c, nil
}

// URL is the address of the page.
func (c *Console) URL() string { return "http://" + c.address + "/" }

// Stop ends what goes on, and waits until it has ended.
func (c *Console) Stop(ctx context.Context) error {
	c.stop()
	c.mu.Lock()
	for _, h := range c.held {
		h.Release() // or its replica would wait for the answer
	}
	c.mu.Unlock()
	err := c.server.Shutdown(ctx)
	ended := make(chan struct{})
	go func() { c.tasks.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("the console has not ended: %w", ctx.Err()))
	}
	return errors.Join(err, c.server.Close(), c.viewer.Close())
}

// activity is a run, a story, an exploration, or a sale until it is held.
type activity struct {
	id     int    // numbered from 1
	kind   string // "run", "story", "exploration" or "hold"
	ctx    context.Context
	cancel context.CancelFunc
	gate   *gate // of a story
}

// begin begins an activity, unless one is going on. The caller calls end when it has ended.
func (c *Console) begin(kind string) (*activity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.goesOn("hold"):
		return nil, errHoldGoesOn
	case c.current != nil:
		return nil, conflict("%s is going on: wait for its end, or cancel it", withArticle(c.current.kind))
	case c.ctx.Err() != nil:
		return nil, errStopped
	case kind == "hold" && c.underWay():
		return nil, conflict("other requests of this page have no answer yet, and one of them could be held instead: wait")
	case kind == "run" && c.waiting > 0:
		return nil, conflict("requests of this page have no answer yet (%d): release them, or wait", c.waiting)
	}
	c.begun++
	a := &activity{id: c.begun, kind: kind, gate: newGate()}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	c.current = a
	return a, nil
}

var (
	errStopped    = conflict("the lab is being stopped")
	errHoldGoesOn = conflict("a sale is about to be held, and a proxy could hold another one instead: "+
		"try again when it is held, or in %v", holdWait)
)

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
		return nil, conflict("no %s is going on", cmp.Or(kind, "run, story or exploration"))
	case c.current.id != id:
		return nil, conflict("number %d is not going on: number %d is, %s", id, c.current.id, withArticle(c.current.kind))
	}
	return c.current, nil
}

// runGoesOn reports whether a run is going on.
func (c *Console) runGoesOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goesOn("run")
}

// goesOn reports whether an activity of this kind is going on. c.mu is held.
func (c *Console) goesOn(kind string) bool { return c.current != nil && c.current.kind == kind }

// strategy returns a row of the catalogue.
func (c *Console) strategy(name string) (scenario.Strategy, bool) {
	i := slices.IndexFunc(c.catalogue, func(s scenario.Strategy) bool { return s.Name == name })
	if i < 0 {
		return scenario.Strategy{}, false
	}
	return c.catalogue[i], true
}
