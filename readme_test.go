package stock_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"stock/internal/stock"
)

var update = flag.Bool("update", false, "rewrite the README's strategy table from the catalogue")

const (
	tableBegins = "<!-- The strategy table is made from the catalogue: go test . -update -->\n"
	tableEnds   = "<!-- end of the strategy table -->\n"
)

func TestREADMEHasTheStrategiesOfTheCatalogue(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(readme), tableBegins)
	table, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		t.Fatalf("README.md has no %q followed by %q", tableBegins, tableEnds)
	}
	want := strategyTable(stock.Catalogue)
	if *update {
		if err := os.WriteFile("README.md", []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the strategy table differs from the catalogue: run go test . -update\n got:\n%s\nwant:\n%s", table, want)
	}
}

func strategyTable(catalogue []stock.Strategy) string {
	var b strings.Builder
	b.WriteString("| strategy | how it works | store | 1 replica | 2 replicas | holder dies | holder is stopped | client retries |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	promises := map[stock.Promise]string{
		stock.Correct:      "correct",
		stock.LosesUpdates: "**loses updates**",
		stock.Oversells:    "**oversells**",
		stock.SellsNothing: "sells nothing",
	}
	for _, s := range catalogue {
		var stores []string
		for _, on := range s.Stores {
			stores = append(stores, string(on))
		}
		name := "`" + s.Name + "`"
		if s.Control {
			name += " *"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", name, s.Summary, strings.Join(stores, ", "),
			promises[s.Claim.OneReplica], promises[s.Claim.TwoReplicas], s.Claim.HolderCrash, s.Claim.HolderPause, s.Claim.ClientRetry)
	}
	return b.String()
}
