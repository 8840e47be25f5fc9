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

// History is the content of a file.
type History struct {
	Run    Run
	Ops    []Op    // in the sequence in which they were recorded
	Ledger []Entry // sorted by key
	End    *End    // nil if the run was interrupted
}

// line is one line of a file: exactly one of its fields is set.
type line struct {
	Run   *Run   `json:"run,omitempty"`
	Op    *Op    `json:"op,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
	End   *End   `json:"end,omitempty"`
}

// Writer appends to a history file. Its methods may be called concurrently.
//
// It buffers lines and keeps errors until Close, so that recording costs a client as little as possible.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	buf  *bufio.Writer
	err  error // the first one; after it, nothing is written
}

// Create starts the history of a run in a file at path, which it overwrites.
func Create(path string, run Run) (*Writer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	w := &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	w.append(line{Run: &run})
	// Flush, so that the file of an interrupted run at least describes the run.
	if err := w.flush(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// Op records a request and its reply.
func (w *Writer) Op(op Op) { w.append(line{Op: &op}) }

// Entry records a row of the ledger.
func (w *Writer) Entry(entry Entry) { w.append(line{Entry: &entry}) }

// Close records the end of the run and closes the file. It returns the first error since Create.
func (w *Writer) Close(end End) error {
	w.append(line{End: &end})
	return w.Abandon()
}

// Abandon closes the file without an end, as that of an interrupted run. It returns the first error since Create.
func (w *Writer) Abandon() error {
	return errors.Join(w.flush(), w.file.Close())
}

func (w *Writer) append(l line) {
	text, err := json.Marshal(l) // outside the mutex, because it is the expensive part
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

// Read reads a history file. A file without its end, or with an incomplete last line, is that of an interrupted run
// and no error.
func Read(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer file.Close()

	h := &History{}
	in := bufio.NewReaderSize(file, 1<<16)
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// Text without a line feed was still being written.
			if number == 1 {
				return nil, fmt.Errorf("read history %s: it does not begin with a run", path)
			}
			return h, nil
		}
		if err == nil {
			err = h.add(text, number == 1)
		}
		if err != nil {
			return nil, fmt.Errorf("read history %s: line %d: %w", path, number, err)
		}
	}
}

// add adds a line to the history.
func (h *History) add(text []byte, first bool) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields() // the judge must not ignore what it does not understand
	var l line
	if err := dec.Decode(&l); err != nil {
		return err
	}
	switch {
	case first != (l.Run != nil):
		return errors.New("a file must hold one run, on its first line")
	case h.End != nil:
		return errors.New("nothing may follow the end")
	}
	kinds := 0
	if l.Run != nil {
		kinds++
		h.Run = *l.Run
	}
	if l.Op != nil {
		kinds++
		h.Ops = append(h.Ops, *l.Op)
	}
	if l.Entry != nil {
		kinds++
		h.Ledger = append(h.Ledger, *l.Entry)
	}
	if l.End != nil {
		kinds++
		h.End = l.End
	}
	if kinds != 1 {
		return errors.New("a line must hold exactly one of run, op, entry and end")
	}
	return nil
}
