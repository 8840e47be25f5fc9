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
		{Strategy: "update", Store: "mysql", Replicas: 2, Workload: history.Workload{Name: "plenty"}, Round: 1}, run.Cell}}
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
	for want, cell := range map[string]history.Cell{
		"":           {},
		", 1 user":   {Sweep: "users", Value: "1"},
		", 8 users":  {Sweep: "users", Value: "8"},
		", 1 item":   {Sweep: "goods", Value: "1"},
		", 10 items": {Sweep: "goods", Value: "10"},
		", hold 2ms": {Sweep: "hold", Value: "2ms"},
	} {
		if got := cell.At(); got != want {
			t.Errorf("%s=%s: %q, want %q", cell.Sweep, cell.Value, got, want)
		}
	}
}

func TestCellOfAnOlderManifestHasTheKeyOfItsRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), history.ManifestName)
	text := `{"cells":[{"strategy":"update","workload":"plenty","store":"mysql","replicas":2,"round":1}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := history.ReadManifest(path)
	if err != nil || len(got.Cells) != 1 || got.Cells[0].Key() != run.Key() {
		t.Errorf("read %+v, %v, want the key %+v", got, err, run.Key())
	}
}
