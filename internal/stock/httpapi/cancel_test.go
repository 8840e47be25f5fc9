package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"stock/internal/must"
)

const sales = "/stock/sales/"

// sellWithKey sells three units of item 1.
func (r *replica) sellWithKey(t *testing.T, key string) reply {
	t.Helper()
	header := map[string]string{"Idempotency-Key": `"` + key + `"`}
	return do(t, request{method: "POST", url: r.public + "/stock/deduct?goods_id=1&count=3", header: header})
}

func TestACancellationMayBeChunked(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	r.sellWithKey(t, "k").want(t, 200, "")
	body := struct{ io.Reader }{strings.NewReader(`{"cancelled":1}`)} // without a length that net/http could tell
	reply, err := http.Post(r.public+sales+"k/cancel", "application/json", body)
	must.Succeed(t, err)
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("the status is %d", reply.StatusCode)
	}
	r.wantStock(t, "8")
}
