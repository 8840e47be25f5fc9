package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/page"
	"stock/loadtest/internal/report"
)

// CreateDir creates the directory of a run, unless it holds another run: the histories of both would later be judged
// together. If dir is empty, it creates a new one, named after the time. The returned function removes the directory if
// it is new and still empty.
func CreateDir(dir string) (path string, removeIfEmpty func(), err error) {
	if dir == "" {
		if dir, err = createNamedAfterTime("out"); err != nil {
			return "", nil, err
		}
		return dir, func() { os.Remove(dir) }, nil // fails if it is not empty
	}
	found, err := histories(dir)
	if err != nil {
		return "", nil, fmt.Errorf("--out: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, history.ManifestName)); err == nil || len(found) > 0 {
		return "", nil, fmt.Errorf("--out %s holds the histories of another run: choose another directory, or remove it", dir)
	}
	_, err = os.Stat(dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("--out: %w", err)
	}
	return dir, func() {
		if isNew {
			os.Remove(dir) // fails if it is not empty
		}
	}, nil
}

// createNamedAfterTime creates a directory in parent. Its name has a number if another run began in the same second.
func createNamedAfterTime(parent string) (dir string, err error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(parent, time.Now().Format("20060102-150405"))
	dir = name
	for n := 2; ; n++ {
		if err := os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
		dir = fmt.Sprintf("%s-%d", name, n)
	}
}

// WriteManifest records the plan before the first run, so that verify can tell what is missing if the lab is killed.
func WriteManifest(dir string, environment report.Environment, plan []history.Cell) error {
	text, err := json.Marshal(environment)
	if err != nil {
		return err
	}
	manifest := history.Manifest{Environment: text, Cells: plan}
	return history.WriteManifest(filepath.Join(dir, history.ManifestName), manifest)
}

// WriteReport writes a report in every format.
func WriteReport(dir string, r *report.Report) error {
	for name, write := range map[string]func(io.Writer) error{
		"report.json": r.WriteJSON,
		"report.md":   func(w io.Writer) error { return r.WriteText(w, false) },
		ReportPage:    func(w io.Writer) error { return page.WriteReport(w, r) },
	} {
		if err := WriteFile(filepath.Join(dir, name), write); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// ReportPage is the name of a report that is opened in a browser.
const ReportPage = "report.html"

// WriteFile creates a file, or replaces it.
func WriteFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// histories lists the histories in the directory of a run.
func histories(dir string) ([]string, error) {
	ofLoad, err := filepath.Glob(filepath.Join(dir, "history", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	ofFaults, err := filepath.Glob(filepath.Join(dir, "faults", "*.jsonl"))
	return slices.Concat(ofLoad, ofFaults), err
}

// ReadReport reads a report, given the path of its JSON file or of its directory.
func ReadReport(path string) (*report.Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := report.ReadJSON(file)
	if err != nil {
		return nil, fmt.Errorf("%s is no report: give a run's directory or its report.json: %w", path, err)
	}
	return r, nil
}
