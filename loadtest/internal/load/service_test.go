package load

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"stock/loadtest/internal/oracle"
)

func TestServiceReportsItsStock(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "/stock/1?store=redis":
			fmt.Fprint(w, `{"goods_id":1,"stock":0,"store":"redis"}`)
		case "/stock/2?store=redis":
			fmt.Fprint(w, `{"goods_id":2}`)
		default:
			http.Error(w, `{"type":"/problems/unknown-goods"}`, http.StatusNotFound)
		}
	}))
	defer server.Close()
	service := Service{URL: server.URL, Client: server.Client()}
	got, err := service.Stock(t.Context(), oracle.Redis, []int64{1})
	if err != nil || !maps.Equal(got, map[int64]int64{1: 0}) {
		t.Errorf("stock %v, %v, want 0 units of item 1", got, err)
	}
	for _, id := range []int64{2, 3} {
		if got, err := service.Stock(t.Context(), oracle.Redis, []int64{id}); err == nil {
			t.Errorf("stock of item %d: %v, want an error", id, got)
		}
	}
}
