package scenario_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

func TestAPictureIsKeptBesideAHistoryThatNoSequenceExplains(t *testing.T) {
	t.Parallel()
	h := history.History{
		Run: history.Run{Claim: verify.ClaimCorrect, Initial: map[int64]int64{1: 10}},
		Ops: []history.Op{{
			Kind: history.Deduct, Name: "a", GoodsID: 1, Count: 1, SentNS: 1, ReceivedNS: 2, Outcome: history.Sold,
			Remaining: 8, // although it left 9
		}},
		End: &history.End{Final: map[int64]int64{1: 9}},
	}
	dir := t.TempDir()
	pictures, err := scenario.WritePictures(&h, verify.Judge(&h).Unexplained, filepath.Join(dir, "history.jsonl"))
	want := filepath.Join(filepath.Base(dir), "history-item1.html")
	if err != nil || !slices.Equal(pictures, []string{want}) {
		t.Fatalf("got %v, %v, want %s", pictures, err, want)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), want))
	if err != nil || !strings.Contains(string(text), "sold 1, 8 remain") {
		t.Errorf("the picture is %d bytes long, %v", len(text), err)
	}
	if evidence := scenario.PictureEvidence(pictures); len(evidence) != 1 || !strings.Contains(evidence[0], want) {
		t.Errorf("got %q", evidence)
	}
}
