package size

import (
	"bytes"
	"flag"
	"io"
	"math"
	"os"
	"regexp"
	"testing"
	"time"

	"stock/docs"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/sizing.md")

const document = "../../../docs/sizing.md"

func TestTheDocumentShowsTheRecord(t *testing.T) {
	record, err := ReadRecord(docs.Size)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := text
	for name, write := range map[string]func(io.Writer) error{
		"errors": record.WriteErrors,
		"curves": func(w io.Writer) error {
			return record.WriteCurves(w, 500*time.Microsecond, 2*time.Millisecond)
		},
	} {
		var table bytes.Buffer
		if err := write(&table); err != nil {
			t.Fatal(err)
		}
		section := regexp.MustCompile(`(?s)(<!-- table of size.json: ` + name + ` -->\n).*?(<!-- end of table -->)`)
		if !section.Match(want) {
			t.Fatalf("%s has no table %s", document, name)
		}
		want = section.ReplaceAll(want, []byte("${1}"+table.String()+"${2}"))
	}
	if *update {
		if err := os.WriteFile(document, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(text, want) {
		t.Errorf("%s does not show docs/size.json: run go test ./loadtest/internal/size -update", document)
	}
}

// A prediction that was tested says nothing about a model that was changed since.
func TestTheModelStillPredictsWhatWasTested(t *testing.T) {
	record, err := ReadRecord(docs.Size)
	if err != nil {
		t.Fatal(err)
	}
	machine := Machine{Cores: 2} // of the record
	for _, test := range record.Tests {
		now := record.Profile(test.Strategy).Predict(machine, test.Setting).Goodput
		if math.Abs(now/test.Predicted-1) > 0.05 {
			t.Errorf("%s with %v: %.0f sales/s, but %.0f was tested", test.Strategy, test.Setting, now, test.Predicted)
		}
	}
}
