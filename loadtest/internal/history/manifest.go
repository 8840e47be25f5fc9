package history

import (
	"encoding/json"
	"fmt"
	"os"
)

// ManifestName is the file name of a Manifest in the directory of a run.
const ManifestName = "run.json"

// Manifest says what is to be run. It is written before the first run: whoever judges the histories later can then tell
// a complete set of them from what was left by a run that was killed.
type Manifest struct {
	Environment json.RawMessage `json:"environment"` // as in the report, which is only written at the end
	Cells       []Cell          `json:"cells"`
}

// Cell is one planned run: one round of one strategy under one workload.
type Cell struct {
	Strategy string `json:"strategy"`
	Workload string `json:"workload"`
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	Value    string `json:"value,omitempty"` // of what is swept
	Round    int    `json:"round"`           // from 1
}

// Cell is the plan that the run carries out.
func (r Run) Cell() Cell { return Cell{r.Strategy, r.Workload, r.Store, r.Replicas, r.Value, r.Round} }

// At says at which value of a sweep the run was, as the end of a sentence; empty without a sweep, and where the sentence has
// the replicas already.
func (r Run) At() string {
	several := "s"
	if r.Value == "1" {
		several = ""
	}
	switch r.Sweep {
	case "users":
		return ", " + r.Value + " user" + several
	case "goods":
		return ", " + r.Value + " kind" + several + " of goods"
	case "hold":
		return ", hold " + r.Value
	}
	return ""
}

// WriteManifest writes a manifest to a file at path, in place of what is there.
func WriteManifest(path string, m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest %s: %w", path, err)
	}
	// By way of another name: a kill leaves the whole file or none.
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// ReadManifest reads what WriteManifest wrote. Where there is no file, the error is fs.ErrNotExist.
func ReadManifest(path string) (Manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return m, nil
}
