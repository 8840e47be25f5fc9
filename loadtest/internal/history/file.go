package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// History is what a file holds.
type History struct {
	Run    Run
	Ops    []Op // in the order in which their replies were recorded
	Events []Event
	Ledger []Entry // by order
	End    *End    // nil where the run was interrupted
}

// line is one line of a file: exactly one of its fields is set.
type line struct {
	Run   *Run   `json:"run,omitempty"`
	Op    *Op    `json:"op,omitempty"`
	Event *Event `json:"event,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
	End   *End   `json:"end,omitempty"`
}

// Writer appends to a file of history. Its methods may be called by many clients at once.
//
// Lines are buffered and errors are kept until Close, so that recording costs a client as little as possible.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	buf  *bufio.Writer
	err  error // the first one; nothing is written after it
}

// Create starts the history of a run in a new file at path. A file that is already there is overwritten.
func Create(path string, run Run) (*Writer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	w := &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	w.append(line{Run: &run})
	// The run reaches the disk at once: an interrupted run still says what it was.
	if err := w.flush(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// Op records a request and its reply.
func (w *Writer) Op(op Op) { w.append(line{Op: &op}) }

// Event records something that the lab did or saw.
func (w *Writer) Event(event Event) { w.append(line{Event: &event}) }

// Entry records what the oracle read in the ledger.
func (w *Writer) Entry(entry Entry) { w.append(line{Entry: &entry}) }

// Close records the end of the run, closes the file, and returns the first error since Create.
func (w *Writer) Close(end End) error {
	w.append(line{End: &end})
	return w.Abandon()
}

// Abandon closes the file without an end, as an interrupted run leaves it, and returns the first error since Create.
func (w *Writer) Abandon() error {
	return errors.Join(w.flush(), w.file.Close())
}

func (w *Writer) append(l line) {
	text, err := json.Marshal(l) // outside the mutex: this is the expensive part
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if err == nil {
		_, err = w.buf.Write(append(text, '\n'))
	}
	w.err = err
}

func (w *Writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("write history %s: %w", w.file.Name(), w.err)
	}
	return nil
}

// Read reads a file of history. A file without its end, or with a torn last line, is an interrupted run and no error;
// anything else that is not history is one.
func Read(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer file.Close()

	h := &History{}
	started := false
	in := bufio.NewReaderSize(file, 1<<16)
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// What has no line feed was still being written.
			if !started {
				return nil, fmt.Errorf("read history %s: it does not begin with a run", path)
			}
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read history %s: %w", path, err)
		}
		l, err := parse(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read history %s: line %d: %w", path, number, err)
		case started != (l.Run == nil):
			return nil, fmt.Errorf("read history %s: line %d: a file holds one run, on its first line", path, number)
		case h.End != nil:
			return nil, fmt.Errorf("read history %s: line %d: nothing may follow the end", path, number)
		case l.Run != nil:
			h.Run, started = *l.Run, true
		case l.Op != nil:
			h.Ops = append(h.Ops, *l.Op)
		case l.Event != nil:
			h.Events = append(h.Events, *l.Event)
		case l.Entry != nil:
			h.Ledger = append(h.Ledger, *l.Entry)
		case l.End != nil:
			h.End = l.End
		}
	}
}

func parse(text []byte) (line, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields() // a figure that is not understood must not be judged without
	var l line
	if err := dec.Decode(&l); err != nil {
		return line{}, err
	}
	kinds := 0
	for _, set := range []bool{l.Run != nil, l.Op != nil, l.Event != nil, l.Entry != nil, l.End != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return line{}, errors.New("want exactly one of run, op, event, entry and end")
	}
	return l, nil
}
