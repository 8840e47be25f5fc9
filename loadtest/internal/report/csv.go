package report

import (
	"encoding/csv"
	"fmt"
	"io"
)

// WriteCSV writes every figure of every row, under the names of the JSON.
func (r *Report) WriteCSV(w io.Writer) error {
	lines := make([][]string, 1+len(r.Rows))
	for _, col := range columns {
		if col.csv == "" {
			continue
		}
		lines[0] = append(lines[0], col.csv)
		for i, row := range r.Rows {
			lines[1+i] = append(lines[1+i], fmt.Sprint(col.value(row)))
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}
