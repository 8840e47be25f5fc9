package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/history"
)

var (
	run = history.Run{
		Cell: history.Cell{
			Subject: history.Subject{
				Strategy: "update", Store: "mysql", Replicas: 2, Workload: history.Workload{Name: "plenty", Users: 100},
			},
			Round: 1,
		},
		Planned: 2, Claim: "correct", Exclusive: true, Fenced: true, Witness: "oracle", Scarce: true, JudgedOnly: true,
		Retries: true,
		Set:     map[int64]int64{1: 6000}, Initial: map[int64]int64{1: 6000}, InitialSeller: map[int64]int64{1: 6000},
	}
	sold = history.Op{Kind: history.Deduct, Name: "o1", GoodsID: 1, Count: 2, SentNS: 10, ReceivedNS: 20, Status: 200,
		Outcome: history.Sold, Remaining: 5998, Replica: "a", RequestID: "r1", Token: 1 << 60, EnteredNS: 12, LeftNS: 18}
	refused = history.Op{
		Kind: history.Order, Name: "o2", SentNS: 30, ReceivedNS: 40, Status: 409, Outcome: history.SoldOut,
		Lines: []history.Line{
			{GoodsID: 1, Count: 2}, {GoodsID: 2, Count: 1, Remaining: 3, OmitsRemaining: true, Short: true, Token: 4},
		},
		Again: true, How: history.Later, Replayed: true,
	}
	held = history.Op{
		Kind: history.Hold, Client: 3, Name: "o3", Reservation: "id", GoodsID: 1, Count: 2, TTLMS: 300, SentNS: 50,
		ReceivedNS: 60, Status: 201, Outcome: history.Done, State: history.Held, CreatedUS: 7, ExpiresUS: 8, EndedUS: 9,
		Remaining: 4, Replica: "a", RequestID: "r3", Error: "e", Keyed: true, Again: true, Replayed: true,
	}
	entry = history.Entry{Key: "o1", GoodsID: 1, Count: 2, Remaining: 5998}
	end   = history.End{
		StartedNS: 5, EndedNS: 30, Final: map[int64]int64{1: 5998}, MySQLStatements: 3, MeanLagNS: 4, MaxLagNS: 5,
	}
)

func TestReadReturnsWhatWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	w, err := history.Create(path, run)
	must.Succeed(t, err)
	w.Op(sold)
	w.Op(refused)
	w.Op(held)
	w.Entry(entry)
	must.Succeed(t, w.Close(end))
	got, err := history.Read(path)
	must.Succeed(t, err)
	want := &history.History{
		Run: run, Ops: []history.Op{sold, refused, held}, Ledger: []history.Entry{entry}, End: &end,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestInterruptedRunIsReadUpToItsLastCompleteLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	w, err := history.Create(path, run)
	must.Succeed(t, err)
	w.Op(sold)
	w.Op(sold)
	must.Succeed(t, w.Abandon())
	whole, err := os.ReadFile(path)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, whole[:len(whole)-7], 0o600))
	got, err := history.Read(path)
	must.Succeed(t, err)
	if got.End != nil || len(got.Ops) != 1 {
		t.Errorf("got %d ops and end %v, want 1 op and no end", len(got.Ops), got.End)
	}
}

func TestCreateReportsAFullDisk(t *testing.T) {
	t.Parallel()
	w, err := history.Create("/dev/full", run)
	if err == nil {
		_ = w.Abandon()
		t.Fatal("a full disk went unnoticed")
	}
	if !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %q, want the cause", err)
	}
}

func TestReadRefusesInvalidFiles(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":           "",
		"no run first":    `{"op":{"kind":"deduct"}}` + "\n",
		"two runs":        `{"run":{}}` + "\n" + `{"run":{}}` + "\n",
		"two kinds":       `{"run":{},"op":{}}` + "\n",
		"unknown kind":    `{"run":{}}` + "\n" + `{"fault":{}}` + "\n",
		"damaged":         `{"run":{}}` + "\n" + `{"op":{"ki` + "\n" + `{"op":{}}` + "\n",
		"after the end":   `{"run":{}}` + "\n" + `{"end":{}}` + "\n" + `{"op":{}}` + "\n",
		"nothing in line": `{"run":{}}` + "\n" + `{}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "h.jsonl")
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
			if h, err := history.Read(path); err == nil {
				t.Errorf("read as %+v", h)
			} else if !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}
