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

func TestTwoSalesAreHeldAndReleasedInAnyOrder(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t, "--hold")
	tab := watch(t, d.Console)
	tab.post(http.StatusNoContent, "stock", `{"stock":10}`)
	tab.post(http.StatusNoContent, "sales", saleHeldAt("none", 1, "write"))
	tab.post(http.StatusNoContent, "sales", saleHeldAt("none", 2, "write"))
	held := tab.untilHeld(2).Lab.Held
	tab.post(http.StatusNoContent, "holds/release", named(held[1].Name))
	tab.until("the second has sold", func(s consoleState) bool {
		return strings.Contains(s.Lab.Sales[1].Answer, "8 remain") && s.Lab.Sales[0].Answer == ""
	})
	tab.mustRefuse("holds/cut", named(held[1].Name), "it goes on already")
	tab.post(http.StatusNoContent, "holds/release", named(held[0].Name))
	tab.until("the first has sold, and the second sale is lost", func(s consoleState) bool {
		return strings.Contains(s.Lab.Sales[0].Answer, "9 remain") && s.Lab.Contents.MySQL.Stock == 9
	})
}

func TestASaleThatIsCancelledWhileItIsHeldSellsNothing(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t, "--hold")
	tab := watch(t, d.Console)
	tab.post(http.StatusNoContent, "stock", `{"stock":10}`)
	answers := func(n int, want string) {
		t.Helper()
		tab.until(want, func(s consoleState) bool { return len(s.Lab.Sales) > n && s.Lab.Sales[n].Answer == want })
	}
	const sale = `{"strategy":"redis-watch","replica":"replica-1","count":2,"key":`
	tab.post(http.StatusNoContent, "sales", sale+`"a"}`)
	answers(0, "sold by replica-1, 8 remain")
	tab.post(http.StatusNoContent, "sales", sale+`"a"}`)
	answers(1, "sold by replica-1, 8 remain (replayed)")
	tab.post(http.StatusNoContent, "sales", sale+`"b","hold":"read"}`)
	if held := tab.untilHeld(1).Lab.Held[0]; held.Text != "mget stock:{1} stock:key:b stock:{1}:epoch" {
		t.Errorf("%q is held, want the read of a sale with a key", held.Text)
	}
	tab.post(http.StatusNoContent, "sales", sale+`"b","cancel":true}`)
	answers(3, "cancelled: nothing was sold, and nothing will be")
	tab.post(http.StatusNoContent, "holds/release", "{}")
	answers(2, "refused: cancelled (replayed)")
}

func TestAReleasedWriteThatWaitsForARowIsNotCut(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t, "--hold")
	tab := watch(t, d.Console)
	tab.post(http.StatusNoContent, "stock", `{"stock":10}`)
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
	tab.until("both have sold", func(s consoleState) bool { return s.Lab.Contents.MySQL.Stock == 7 })
}

// Client B waits for the lock of A, whose write is held. The proxy could hold another sale instead of B.
func TestUntilASaleIsHeldNothingElseSells(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t, "--hold")
	tab := watch(t, d.Console)
	tab.post(http.StatusNoContent, "stock", `{"stock":10}`)
	tab.post(http.StatusNoContent, "sales", saleHeldAt("lock-redis-lua", 1, "write"))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Console+"sales",
			strings.NewReader(saleHeldAt("lock-redis-lua", 2, "write")))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Content-Type", "application/json")
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	tab.until("B has been sent", func(s consoleState) bool { return len(s.Lab.Sales) == 2 })
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
		response, err := http.Post(d.Console+"holds/release", "application/json", strings.NewReader("{}"))
		must.Succeed(t, err)
		response.Body.Close()
		return response.StatusCode == http.StatusNoContent
	})
	tab.until("both have sold", func(s consoleState) bool {
		return s.Lab.Contents.MySQL.Stock == 7 && len(s.Lab.Held) == 0
	})
}
