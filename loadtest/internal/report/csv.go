package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteCSV writes the figures of every row under the names of the JSON: latency_ms_p50 is p50 of latency_ms. Of lists,
// such as the rounds, it has only those of texts.
func (r *Report) WriteCSV(w io.Writer) error {
	rows := make([]map[string]string, len(r.Rows))
	names := map[string]bool{}
	for i, row := range r.Rows {
		text, err := json.Marshal(row)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // as it was written
		var fields map[string]any
		if err := decoder.Decode(&fields); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		rows[i] = map[string]string{}
		flatten(rows[i], "", fields)
		for name := range rows[i] {
			names[name] = true
		}
	}
	delete(names, "strategy")
	delete(names, "workload")
	lines := [][]string{append([]string{"strategy", "workload"}, slices.Sorted(maps.Keys(names))...)}
	for _, row := range rows {
		var line []string
		for _, name := range lines[0] {
			line = append(line, row[name])
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// flatten adds the fields of an object, and those of the objects in it.
func flatten(row map[string]string, prefix string, fields map[string]any) {
	for name, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			flatten(row, prefix+name+"_", value)
		case []any:
			var texts []string
			for _, element := range value {
				if text, ok := element.(string); ok {
					texts = append(texts, text)
				}
			}
			if len(texts) > 0 {
				row[prefix+name] = strings.Join(texts, "; ")
			}
		case nil:
		default:
			row[prefix+name] = fmt.Sprint(value)
		}
	}
}
