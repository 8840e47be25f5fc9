package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
)

// screen shows progress: on a terminal in one line that it overwrites, elsewhere in one line per finished run.
type screen struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
}

func newScreen(w io.Writer) *screen { return &screen{w: w, terminal: report.Terminal(w)} }

// clear erases the status line.
func (s *screen) clear() { s.status("") }

// status replaces the status line. It does nothing if the output is not a terminal.
func (s *screen) status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		fmt.Fprint(s.w, "\r\x1b[K", text)
	}
}

// starting says that servers are being started, which takes seconds.
func (s *screen) starting() {
	const text = "starting the servers …"
	s.status(text)
	s.logLine(text)
}

// logLine writes a line if the output is not a terminal.
func (s *screen) logLine(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		fmt.Fprintln(s.w, text)
	}
}

// println writes a line that stays, on any output.
func (s *screen) println(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		text = "\r\x1b[K" + text
	}
	fmt.Fprintln(s.w, text)
}

// follow keeps the status line up to date until stop is called.
func (s *screen) follow(progress func() load.Progress) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.status(progress().String())
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
