package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stock/internal/must"
)

// saleHeldAt asks for a sale of replica-1 that is held at a step.
func saleHeldAt(strategy string, count int, step string) string {
	return fmt.Sprintf(`{"strategy":%q,"replica":"replica-1","count":%d,"hold":%q}`, strategy, count, step)
}

// named is a request about a sale that is held.
func named(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }

// mustRefuse expects 409 and words.
func (w *watching) mustRefuse(path, body, words string) {
	w.t.Helper()
	if reply := w.post(http.StatusConflict, path, body); !strings.Contains(reply, words) {
		w.t.Errorf("%s %s: %s, want %q", path, body, reply, words)
	}
}

func (w *watching) untilHeld(n int) consoleState {
	w.t.Helper()
	return w.until(fmt.Sprintf("%d sales are held", n), func(s consoleState) bool { return len(s.Lab.Held) == n })
}

func TestSalesAreHeld(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t, "--hold")
	for name, test := range map[string]func(*watching){
		"two are released in any order":           releaseInAnyOrder,
		"one that is cancelled sells nothing":     cancelWhileHeld,
		"one that waits for a row is not cut":     waitForARow,
		"until one is held, nothing else is sold": awaitTheSecond,
	} {
		t.Run(name, func(t *testing.T) {
			tab := watch(t, d.Console)
			tab.sales = len(tab.until("the state", func(consoleState) bool { return true }).Lab.Sales)
			tab.post(http.StatusNoContent, "stock", `{"stock":10}`)
			test(tab)
		})
	}
	t.Run("in a browser", func(t *testing.T) { lookAtAHeldSale(t, d.Console) })
}

// untilAnswered waits for the answer to the n-th sale of a test, from 0.
func (w *watching) untilAnswered(n int, want string) {
	w.t.Helper()
	n += w.sales
	w.until(want, func(s consoleState) bool {
		return len(s.Lab.Sales) > n && strings.Contains(s.Lab.Sales[n].Answer, want)
	})
}

// untilStock waits until MySQL has so many units, and nothing is held.
func (w *watching) untilStock(units int64) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d units", units), func(s consoleState) bool {
		return s.Lab.Contents.MySQL.Stock == units && len(s.Lab.Held) == 0
	})
}

func releaseInAnyOrder(tab *watching) {
	tab.post(http.StatusNoContent, "sales", saleHeldAt("none", 1, "write"))
	tab.post(http.StatusNoContent, "sales", saleHeldAt("none", 2, "write"))
	held := tab.untilHeld(2).Lab.Held
	tab.post(http.StatusNoContent, "holds/release", named(held[1].Name))
	tab.until("the second has sold", func(s consoleState) bool {
		sales := s.Lab.Sales[tab.sales:]
		return strings.Contains(sales[1].Answer, "8 remain") && sales[0].Answer == ""
	})
	tab.mustRefuse("holds/cut", named(held[1].Name), "it goes on already")
	tab.post(http.StatusNoContent, "holds/release", named(held[0].Name))
	tab.untilAnswered(0, "9 remain")
	tab.untilStock(9) // the second sale is lost
}

func cancelWhileHeld(tab *watching) {
	const sale = `{"strategy":"redis-watch","replica":"replica-1","count":2,"key":`
	tab.post(http.StatusNoContent, "sales", sale+`"a"}`)
	tab.untilAnswered(0, "sold by replica-1, 8 remain")
	tab.post(http.StatusNoContent, "sales", sale+`"a"}`)
	tab.untilAnswered(1, "sold by replica-1, 8 remain (replayed)")
	tab.post(http.StatusNoContent, "sales", sale+`"b","hold":"read"}`)
	if held := tab.untilHeld(1).Lab.Held[0]; held.Text != "mget stock:{1} stock:key:b stock:{1}:epoch" {
		tab.t.Errorf("%q is held, want the read of a sale with a key", held.Text)
	}
	tab.post(http.StatusNoContent, "sales", sale+`"b","cancel":true}`)
	tab.untilAnswered(3, "cancelled: nothing was sold, and nothing will be")
	tab.post(http.StatusNoContent, "holds/release", "{}")
	tab.untilAnswered(2, "refused: cancelled (replayed)")
}

func waitForARow(tab *watching) {
	tab.post(http.StatusNoContent, "sales", saleHeldAt("for-update", 1, "commit"))
	tab.post(http.StatusNoContent, "sales", saleHeldAt("update", 2, "write"))
	held := tab.untilHeld(2).Lab.Held
	released := make(chan struct{})
	go func() {
		tab.post(http.StatusNoContent, "holds/release", named(held[1].Name)) // returns when the row is free
		close(released)
	}()
	tab.untilHeld(1)
	tab.mustRefuse("holds/cut", named(held[1].Name), "it goes on already")
	tab.mustRefuse("sales", saleHeldAt("none", 1, "write"), "have no answer yet")
	tab.post(http.StatusNoContent, "holds/release", "{}")
	<-released
	tab.untilStock(7)
}

// Client B waits for the lock of A, whose write is held. The proxy could hold another sale instead of B.
func awaitTheSecond(tab *watching) {
	tab.post(http.StatusNoContent, "sales", saleHeldAt("lock-redis-lua", 1, "write"))
	ctx, leave := context.WithCancel(tab.t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, tab.url+"sales",
			strings.NewReader(saleHeldAt("lock-redis-lua", 2, "write")))
		if err != nil {
			tab.t.Error(err)
			return
		}
		request.Header.Set("Content-Type", "application/json")
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	tab.until("B has been sent", func(s consoleState) bool { return len(s.Lab.Sales) == tab.sales+2 })
	for path, body := range map[string]string{
		"sales": `{"strategy":"update","replica":"","count":1,"hold":""}`, "stock": `{"stock":5}`, "holds/release": "{}",
		"story": `{"scenario":"late-write","strategy":"update"}`,
	} {
		tab.mustRefuse(path, body, "a sale is about to be held")
	}
	tab.mustRefuse("sales", saleHeldAt("none", 1, "write"), "a sale is about to be held")
	leave() // so B is not held any more
	<-left
	tab.until("B is not awaited any more", func(consoleState) bool {
		response, err := http.Post(tab.url+"holds/release", "application/json", strings.NewReader("{}"))
		must.Succeed(tab.t, err)
		response.Body.Close()
		return response.StatusCode == http.StatusNoContent
	})
	tab.untilStock(7)
}
