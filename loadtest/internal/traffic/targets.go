package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
)

// target is a line of vegeta's JSON target format (`vegeta attack -format=json`).
type target struct {
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Body   []byte      `json:"body"` // base64 in JSON
	Header http.Header `json:"header"`
}

// WriteTargets writes the requests of a load to the service at base as vegeta's JSON targets, one per line. If
// load.Requests is 0, it goes on until w fails or ctx ends, so that it can feed a pipe. It holds one line in memory
// at a time.
func WriteTargets(ctx context.Context, w io.Writer, base string, load Load) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	line := target{
		Method: http.MethodPost,
		URL:    strings.TrimSuffix(base, "/") + "/stock/deduct",
		Header: http.Header{"Content-Type": {contentType}},
	}
	prefix := bodyPrefix(load)
	for i := 0; load.Requests == 0 || i < load.Requests; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var op history.Op
		op.GoodsID, op.Count = load.Mix.At(i)
		line.Body = appendBody(line.Body[:0], prefix, &op)
		line.Header["X-Request-Id"] = []string{load.RequestPrefix + "-" + strconv.Itoa(i)}
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("write target %d: %w", i, err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write targets: %w", err)
	}
	return nil
}
