package page

import (
	"encoding/json"
	"strings"
	"sync"

	"stock/docs"
)

// statement is a message that a strategy sends to a store.
type statement struct{ Store, Text, Reply string }

// readStatements returns what each strategy sends for a sale.
var readStatements = sync.OnceValues(func() (map[string][]statement, error) {
	var all struct {
		Strategies map[string]struct{ Sale []statement }
	}
	err := json.Unmarshal(docs.Statements, &all)
	sales := map[string][]statement{}
	for name, s := range all.Strategies {
		sales[name] = s.Sale
	}
	return sales, err
})

// String returns the statements of a message, one in each line.
func (s statement) String() string {
	if s.Store == "mysql" {
		return strings.ReplaceAll(s.Text, "; ", ";\n") + ";"
	}
	return s.Text
}
