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
