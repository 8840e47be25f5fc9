package traffic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"stock/loadtest/internal/history"
)

// vegeta's own parser reads the targets back.
func TestVegetaReadsTheTargets(t *testing.T) {
	t.Parallel()
	mix := newMix(t, MixConfig{Seed: 4, Goods: 3, Skew: Zipf, MinCount: 1, MaxCount: 3})
	var text bytes.Buffer
	load := Load{Strategy: "update", Mix: mix, Requests: 50, RequestPrefix: "v"}
	if err := WriteTargets(t.Context(), &text, "http://127.0.0.1:8000/", load); err != nil {
		t.Fatal(err)
	}
	next := vegeta.NewJSONTargeter(&text, nil, nil)
	read := 0
	for ; ; read++ {
		var target vegeta.Target
		if err := next(&target); errors.Is(err, vegeta.ErrNoTargets) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		goodsID, count := mix.At(read)
		want := string(appendBody(nil, bodyPrefix(load), &history.Op{GoodsID: goodsID, Count: count}))
		const address = "http://127.0.0.1:8000/stock/deduct"
		if target.Method != http.MethodPost || target.URL != address || string(target.Body) != want {
			t.Fatalf("target %d: %s %s %s, want POST %s %s", read, target.Method, target.URL, target.Body, address, want)
		}
		if got := target.Header.Get("Content-Type"); got != "application/json" {
			t.Fatalf("target %d: content type %q", read, got)
		}
	}
	if read != 50 {
		t.Errorf("vegeta read %d targets, want 50", read)
	}
}

func TestEndlessTargetsStopWithTheirReader(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.CopyN(io.Discard, reader, 100_000)
		reader.Close()
	}()
	err := WriteTargets(t.Context(), writer, "http://127.0.0.1:8000", Load{Mix: one(t)})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v, want io.ErrClosedPipe", err)
	}
}

func TestEndlessTargetsStopWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := WriteTargets(ctx, io.Discard, "http://127.0.0.1:8000", Load{Mix: one(t)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
