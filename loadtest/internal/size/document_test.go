package size

import (
	"bytes"
	"flag"
	"io"
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
