package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestATypeErrorNamesTheMemberAndNoGoType(t *testing.T) {
	t.Parallel()
	const wantNumber = ": it must be a whole number of at most 18 digits"
	for body, want := range map[string]string{
		`{"goods_id":"1","count":1}`:   "goods_id must not be a JSON string" + wantNumber,
		`{"goods_id":1,"count":1.5}`:   "count must not be a JSON number 1.5" + wantNumber,
		`{"goods_id":1,"wait_ms":0.5}`: "wait_ms must not be a JSON number 0.5" + wantNumber,
		`{"goods_id":1,"strategy":1}`:  "strategy must not be a JSON number",
		`[1]`:                          "the body must not be a JSON array",
	} {
		request := httptest.NewRequest(http.MethodPost, "/stock/deduct", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		var d deduction
		if got, ok := errors.AsType[*described](readJSON(request, maxBody, &d)); !ok || got.detail != want {
			t.Errorf("%s: %v, want %q", body, got, want)
		}
	}
}
