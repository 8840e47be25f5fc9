package explore

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

func TestTheDocumentListsEveryWorkloadWithItsFaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/explore.md")
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Workloads\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, w := range workloads {
		var faults []string
		crash := w.crashes != nil
		for _, fault := range w.faults {
			if slices.Contains(crashes, fault) && slices.Contains(w.faults, Promoted) {
				crash = true
			} else {
				faults = append(faults, "`"+fault+"`")
			}
		}
		if crash {
			faults = append(faults, "crashes")
		}
		if faults == nil {
			faults = []string{"none"}
		}
		row := fmt.Sprintf("\n| `%s` | %s | %s |\n", w.name, w.title, strings.Join(faults, ", "))
		if !strings.Contains(section, row) {
			t.Errorf("docs/explore.md lacks the row%s", row)
		}
	}
	if rows := strings.Count(section, "\n| `"); rows != len(workloads) {
		t.Errorf("docs/explore.md has %d workloads, and there are %d", rows, len(workloads))
	}
}
