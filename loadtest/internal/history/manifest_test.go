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

	"stock/internal/must"
	"stock/loadtest/internal/history"
)

func TestManifestIsReadAsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), history.ManifestName)
	want := history.Manifest{Environment: json.RawMessage(`{"cores":2}`), Cells: []history.Cell{
		{Subject: history.Subject{Strategy: "update", Replicas: 2, Workload: history.Workload{Name: "plenty"}}, Round: 1},
		run.Cell,
	}}
	for range 2 { // the second one replaces the first
		must.Succeed(t, history.WriteManifest(path, want))
	}
	got, err := history.ReadManifest(path)
	must.Succeed(t, err)
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
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	must.Succeed(t, os.WriteFile(path, []byte(`{"cells":[`), 0o600))
	if _, err := history.ReadManifest(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error with the name of the file", err)
	}
}

func TestLabelNamesThePlaceInASweep(t *testing.T) {
	t.Parallel()
	for want, subject := range map[string]history.Subject{
		"":           {},
		", 1 user":   {Sweep: "users", Workload: history.Workload{Users: 1}},
		", 8 users":  {Sweep: "users", Workload: history.Workload{Users: 8}},
		", 1 item":   {Sweep: "goods", Workload: history.Workload{Goods: 1}},
		", 10 items": {Sweep: "goods", Workload: history.Workload{Goods: 10}},
		", hold 2ms": {Sweep: "hold", Workload: history.Workload{HoldMS: 2}},
	} {
		subject.Strategy, subject.Workload.Name, subject.Replicas = "update", "plenty", 1
		if got := subject.Label(); got != "update, plenty, 1 replica"+want {
			t.Errorf("%q, want it to end with %q", got, want)
		}
	}
}

func TestCellOfAnOlderManifestHasTheKeyOfItsRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), history.ManifestName)
	text := `{"cells":[{"strategy":"update","workload":"plenty","store":"mysql","replicas":2,"round":1}]}`
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	got, err := history.ReadManifest(path)
	if err != nil || len(got.Cells) != 1 || got.Cells[0].InPlan() != run.InPlan() {
		t.Errorf("read %+v, %v, want the key %+v", got, err, run.InPlan())
	}
}
