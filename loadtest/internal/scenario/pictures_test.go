package scenario_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// unexplained returns a history in which each of these items has a sale that no sequence explains.
func unexplained(items ...int64) *history.History {
	h := &history.History{
		Run: history.Run{Claim: verify.ClaimCorrect, Initial: map[int64]int64{}},
		End: &history.End{Final: map[int64]int64{}},
	}
	for _, item := range items {
		h.Run.Initial[item], h.End.Final[item] = 10, 9
		h.Ops = append(h.Ops, history.Op{
			Kind: history.Deduct, Name: fmt.Sprint("r", item), GoodsID: item, Count: 1, SentNS: 1, ReceivedNS: 2,
			Outcome: history.Sold, Remaining: 8, // although it left 9
		})
	}
	return h
}

func TestAPictureIsKeptBesideAHistoryThatNoSequenceExplains(t *testing.T) {
	t.Parallel()
	h := unexplained(1)
	dir := t.TempDir()
	pictures, remarks := scenario.WritePictures(
		h, verify.Judge(h).Unexplained, filepath.Join(dir, "history.jsonl"))
	want := filepath.Join(filepath.Base(dir), "history-item1.html")
	if !slices.Equal(pictures, []string{want}) || len(remarks) != 1 || !strings.HasSuffix(remarks[0], want) {
		t.Fatalf("got %v and %q, want %s", pictures, remarks, want)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), want))
	if err != nil || !strings.Contains(string(text), "sold 1, 8 remain") {
		t.Errorf("the picture is %d bytes long, %v", len(text), err)
	}
}

func TestThreeItemsAreDrawn(t *testing.T) {
	t.Parallel()
	h := unexplained(1, 2, 3, 4, 5)
	pictures, remarks := scenario.WritePictures(
		h, verify.Judge(h).Unexplained, filepath.Join(t.TempDir(), "history.jsonl"))
	if len(pictures) != 3 || len(remarks) != 4 || remarks[3] != "2 more items are not drawn" {
		t.Errorf("got %v and %q, want three pictures", pictures, remarks)
	}
}

func TestAPictureThatFailsIsARemark(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "history.jsonl")
	pictures, remarks := scenario.WritePictures(unexplained(1), []int64{1}, path)
	if len(pictures) != 0 || len(remarks) != 1 || !strings.HasPrefix(remarks[0], "there is no picture: draw item 1: ") {
		t.Errorf("got %v and %q", pictures, remarks)
	}
}
