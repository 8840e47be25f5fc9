package history

import (
	"encoding/json"
	"fmt"
	"os"
)

// ManifestName is the file name of a Manifest in the directory of a run.
const ManifestName = "run.json"

// Manifest is the plan of a run. It is written before the first cell, so that a run that was killed can be told from a
// complete one when its histories are judged.
type Manifest struct {
	Environment json.RawMessage `json:"environment"` // as in the report, which is written only at the end
	Cells       []Cell          `json:"cells"`       // which a complete run has at least
}

// WriteManifest writes a manifest to path, and replaces an existing file.
func WriteManifest(path string, m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest %s: %w", path, err)
	}
	// The rename makes it atomic: a killed run leaves the whole file or none.
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// ReadManifest reads what WriteManifest wrote. The error wraps fs.ErrNotExist if there is no file.
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
