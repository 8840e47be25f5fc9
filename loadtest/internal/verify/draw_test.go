package verify_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// unexplained returns a history that no sequence of its requests explains.
func unexplained() *history.History {
	h := simulate(plenty(19))
	at := sales(h)
	early, late := &h.Ops[at[50]], &h.Ops[at[350]]
	lose(early)
	early.SentNS, early.ReceivedNS = late.SentNS, late.ReceivedNS // after its unit was gone
	return h
}

func TestWhatIsUnexplainedIsDrawn(t *testing.T) {
	t.Parallel()
	h := unexplained()
	v := verify.Judge(h)
	if !slices.Equal(v.Unexplained, []int64{1}) {
		t.Fatalf("got %v: %v", v.Unexplained, v.Evidence)
	}
	path := filepath.Join(t.TempDir(), "picture.html")
	drawn, err := verify.DrawUnexplained(h, 1, path)
	if !drawn || err != nil {
		t.Fatalf("got %v, %v", drawn, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sold 1, 750 remain", "1 sent, outcome unknown", "in stock"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

func TestNothingIsDrawnOfWhatIsExplained(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "picture.html")
	drawn, err := verify.DrawUnexplained(simulate(plenty(20)), 1, path)
	if drawn || err != nil {
		t.Errorf("got %v, %v", drawn, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a picture")
	}
}
