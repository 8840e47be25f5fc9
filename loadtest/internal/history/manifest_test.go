package history_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
)

func TestManifestIsReadAsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), history.ManifestName)
	want := history.Manifest{Environment: json.RawMessage(`{"cores":2}`), Cells: []history.Cell{
		{Strategy: "update", Workload: "plenty", Store: "mysql", Replicas: 2, Round: 1}, run.Cell()}}
	for range 2 { // the second one replaces the first
		if err := history.WriteManifest(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := history.ReadManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	var environment struct{ Cores int }
	if err := json.Unmarshal(got.Environment, &environment); err != nil || environment.Cores != 2 {
		t.Errorf("environment is %s (%v)", got.Environment, err)
	}
	if !reflect.DeepEqual(got.Cells, want.Cells) {
		t.Errorf("got %+v\nwant %+v", got.Cells, want.Cells)
	}
}

func TestMissingAndDamagedManifestsAreErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), history.ManifestName)
	if _, err := history.ReadManifest(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no file", err)
	}
	if err := os.WriteFile(path, []byte(`{"cells":[`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := history.ReadManifest(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestPlaceOfARunOnASweep(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]history.Run{
		"":                    {},
		", 1 user":            {Sweep: "users", Value: "1"},
		", 8 users":           {Sweep: "users", Value: "8"},
		", 1 kind of goods":   {Sweep: "goods", Value: "1"},
		", 10 kinds of goods": {Sweep: "goods", Value: "10"},
		", hold 2ms":          {Sweep: "hold", Value: "2ms"},
	} {
		if got := run.At(); got != want {
			t.Errorf("%s=%s: %q, want %q", run.Sweep, run.Value, got, want)
		}
	}
}
