package traffic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

// orderLoad is a load of orders of 1 to 3 of 4 items.
func orderLoad(t *testing.T, users, requests int) Load {
	t.Helper()
	mix := newMix(t, MixConfig{Seed: 3, Goods: 4, MinCount: 1, MaxCount: 2, OrderEvery: 1, MaxLines: 3})
	return Load{
		Strategy: "update", Mix: mix, Users: users, Requests: requests, Timeout: time.Minute, RequestPrefix: "t",
	}
}

// sendOrder sends one order, and returns what is recorded of its answer.
func sendOrder(t *testing.T, status int, header, body string) history.Op {
	t.Helper()
	driver := serve(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Replica", "one")
		if header != "" {
			w.Header().Set(header, "true")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	load := orderLoad(t, 1, 1)
	for len(load.Mix.Order(0)) != 2 { // an order of two lines
		config := load.Mix.config
		config.Seed++
		load.Mix = newMix(t, config)
	}
	return send(t, driver, load).Ops[0]
}

func TestAnOrderIsSentAsOneRequest(t *testing.T) {
	t.Parallel()
	load := orderLoad(t, 1, 20)
	n := 0
	driver := serve(t, 1, func(w http.ResponseWriter, r *http.Request) {
		var got struct {
			Strategy string         `json:"strategy"`
			Lines    []history.Line `json:"lines"`
		}
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&got)
		want := load.Mix.Order(n)
		if err != nil || r.URL.Path != "/stock/orders" || got.Strategy != "update" || !reflect.DeepEqual(got.Lines, want) {
			t.Errorf("%s %+v, %v, want /stock/orders with %v", r.URL.Path, got, err, want)
		}
		n++
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	result := send(t, driver, load)
	if n != 20 || result.Sent != 20 {
		t.Errorf("%d orders received, %d sent, want 20", n, result.Sent)
	}
	for i, op := range result.Ops {
		if op.Kind != history.Order || op.GoodsID != 0 || op.Count != 0 || !reflect.DeepEqual(op.Lines, load.Mix.Order(i)) {
			t.Errorf("recorded %+v, want the order %v", op, load.Mix.Order(i))
		}
	}
}

func TestTheReceiptOfAnOrderIsRecordedLineByLine(t *testing.T) {
	t.Parallel()
	asked := sendOrder(t, http.StatusServiceUnavailable, "", "{}").Lines
	// The service sorts the lines.
	got := sendOrder(t, http.StatusOK, "Idempotency-Replayed", fmt.Sprintf(`{"lines":[
		{"goods_id":%d,"count":%d,"remaining":7,"token":8},{"goods_id":%d,"count":%d,"remaining":0,"token":0}],
		"attempts":2,"waited_us":30,"held_us":40,"entered_ns":50,"left_ns":60}`,
		asked[1].GoodsID, asked[1].Count, asked[0].GoodsID, asked[0].Count))
	asked[1].Remaining, asked[1].Token = 7, 8
	want := history.Op{
		Kind: history.Order, Name: "t-0", Lines: asked, SentNS: got.SentNS, ReceivedNS: got.ReceivedNS,
		Status: 200, Outcome: history.Sold, Replica: "one", Attempts: 2, WaitedUS: 30, HeldUS: 40,
		EnteredNS: 50, LeftNS: 60, Replayed: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded %+v\nwant     %+v", got, want)
	}
}

func TestOutcomeOfAnOrder(t *testing.T) {
	t.Parallel()
	asked := sendOrder(t, http.StatusServiceUnavailable, "", "{}").Lines
	a, b := asked[0], asked[1]
	line := func(id, count int64) string {
		return fmt.Sprintf(`{"goods_id":%d,"count":%d,"remaining":1}`, id, count)
	}
	receipt := func(lines ...string) string { return `{"lines":[` + strings.Join(lines, ",") + `]}` }
	soldOut := func(id int64) string {
		return fmt.Sprintf(`{"type":"/problems/sold-out","goods_id":%d,"lines":[1],"remaining":3}`, id)
	}
	for name, test := range map[string]struct {
		status int
		body   string
		want   history.Outcome
		short  int // index of the line that is short; -1: none
	}{
		"sold":              {200, receipt(line(a.GoodsID, a.Count), line(b.GoodsID, b.Count)), history.Sold, -1},
		"one line only":     {200, receipt(line(a.GoodsID, a.Count)), history.Unknown, -1},
		"one line twice":    {200, receipt(line(a.GoodsID, a.Count), line(a.GoodsID, a.Count)), history.Unknown, -1},
		"another count":     {200, receipt(line(a.GoodsID, a.Count+1), line(b.GoodsID, b.Count)), history.Unknown, -1},
		"another item":      {200, receipt(line(a.GoodsID, a.Count), line(99, b.Count)), history.Unknown, -1},
		"unreadable":        {200, `{"lines":[`, history.Unknown, -1},
		"sold out":          {409, soldOut(b.GoodsID), history.SoldOut, 1},
		"other item is out": {409, soldOut(99), history.Unknown, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := sendOrder(t, test.status, "", test.body)
			if op.Outcome != test.want || (op.Outcome == history.Sold) != (op.Error == "") {
				t.Errorf("%s %q, want %s", op.Outcome, op.Error, test.want)
			}
			for i, line := range op.Lines {
				if line.Short != (i == test.short) || line.Short && line.Remaining != 3 {
					t.Errorf("line %d is recorded as %+v", i, line)
				}
			}
		})
	}
}
