package contract

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Site is where this repository's service is reached.
type Site struct {
	HTTP     *http.Client
	Replicas []string       // URLs of the public listeners
	Admin    string         // URL of an admin listener
	Ways     map[string]Way // by the strategy that a request names
	NewItem  func() int64   // returns the id of an item that nobody uses, greater than those before
	// LetPass carries out Later and Prune, for some items and the keys with a prefix. It may be nil.
	LetPass func(ctx context.Context, q Request, items []int64, keyPrefix string) error
}

// client is a Service over HTTP.
type client struct {
	*Site
	items  map[byte]int64
	prefix string            // of the keys of this script
	holds  map[string]string // id by name
}

// Way is a strategy on a store.
type Way struct{ Strategy, Store string }

var (
	scripts   atomic.Int64
	numbering sync.Mutex
)

// Service returns the service for one script.
func (s *Site) Service() Service {
	return &client{s, map[byte]int64{}, fmt.Sprintf("contract-%d-%d-", time.Now().UnixNano(), scripts.Add(1)),
		map[string]string{}}
}

// item returns the id of an item. The ids of a script have the order of their letters.
func (c *client) item(letter byte) int64 {
	numbering.Lock()
	defer numbering.Unlock()
	for known := byte('a'); known <= letter; known++ {
		if c.items[known] == 0 {
			c.items[known] = c.NewItem()
		}
	}
	return c.items[letter]
}

// Ask implements Service.
func (c *client) Ask(ctx context.Context, q Request) (string, error) {
	if q.Verb == Later || q.Verb == Prune {
		var items []int64
		for _, id := range c.items {
			items = append(items, id)
		}
		return "", c.LetPass(ctx, q, items, c.prefix)
	}
	r, err := c.request(ctx, q)
	if err != nil {
		return "", err
	}
	response, err := c.HTTP.Do(r)
	if err != nil {
		return Unknown, ctx.Err()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Unknown, ctx.Err()
	}
	var a reply
	if err := json.Unmarshal(body, &a); err != nil {
		return fmt.Sprintf("%d %s", response.StatusCode, body), nil
	}
	answer := c.answer(q, response.StatusCode, a)
	if response.Header.Get("Idempotency-Replayed") == "true" {
		answer += ", replayed"
	}
	return answer, nil
}

// request makes the HTTP request.
func (c *client) request(ctx context.Context, q Request) (*http.Request, error) {
	way, base := c.Ways[q.By], c.Replicas[q.Replica%len(c.Replicas)]+"/stock"
	body := map[string]any{"strategy": way.Strategy, "store": way.Store}
	method := http.MethodPost
	var path string
	switch q.Manner {
	case "try":
		body["wait_ms"] = 0
	case "work":
		body["hold_ms"] = 1
	}
	switch q.Verb {
	case Sell:
		path, body["goods_id"], body["count"] = "/deduct", c.item(q.Lines[0].Item), q.Lines[0].Count
	case Hold:
		path, body["goods_id"], body["count"] = "/reservations", c.item(q.Lines[0].Item), q.Lines[0].Count
		body["ttl_ms"] = HoldTime.Milliseconds()
	case Order:
		path, body["lines"] = "/orders", c.lines(q.Lines, "count")
	case Confirm, Release, Find:
		path = "/reservations/" + cmp.Or(c.holds[q.Name], "01936b8a-0000-7000-8000-000000000000")
		body = nil
		switch q.Verb {
		case Confirm:
			path += "/confirm"
		case Release:
			method = http.MethodDelete
		default:
			method = http.MethodGet
		}
	case Cancel:
		path = "/sales/" + url.PathEscape(c.key(q)) + "/cancel"
		if len(q.Lines) == 1 && q.Lines[0].Item == 0 {
			body["cancelled"] = q.Lines[0].Count
		} else if q.Lines != nil {
			body["lines"] = c.lines(q.Lines, "cancelled")
		}
	case Look:
		method, body = http.MethodGet, nil
		path = fmt.Sprintf("/sales/%s?strategy=%s&store=%s", url.PathEscape(c.key(q)), way.Strategy, way.Store)
	case Set, Restock:
		base, path = c.Admin+"/admin/stock", fmt.Sprintf("/%d", c.item(q.Lines[0].Item))
		method, body = http.MethodPut, map[string]any{"stock": q.Lines[0].Count}
		if q.Verb == Restock {
			path += "/restock?store=" + way.Store
			method, body = http.MethodPost, map[string]any{"count": q.Lines[0].Count}
		}
	default:
		return nil, fmt.Errorf("no request is %q", q)
	}
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, text)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if q.Key != "" && q.Verb != Cancel && q.Verb != Look {
		r.Header.Set("Idempotency-Key", c.key(q))
	}
	return r, nil
}

func (c *client) key(q Request) string { return c.prefix + q.Key }

func (c *client) lines(lines []Line, count string) (all []map[string]any) {
	for _, l := range lines {
		all = append(all, map[string]any{"goods_id": c.item(l.Item), count: l.Count})
	}
	return all
}

// Curl implements Service.
func (c *client) Curl(q Request) string {
	r, err := c.request(context.Background(), q)
	if err != nil {
		return "# " + q.String()
	}
	return CurlOf(r)
}

// CurlOf returns the command that sends a request.
func CurlOf(r *http.Request) string {
	words := []string{"curl -X", r.Method, "'" + r.URL.String() + "'"}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		words = append(words, fmt.Sprintf("-H '%s: %s'", name, r.Header.Get(name)))
	}
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body)
		words = append(words, "-d '"+string(body)+"'")
	}
	return strings.Join(words, " ")
}

// reply has the members of all replies.
type reply struct {
	Type      string          `json:"type"`
	GoodsID   int64           `json:"goods_id"`
	Remaining *int64          `json:"remaining"`
	Stock     *int64          `json:"stock"`
	ID        string          `json:"id"`
	State     string          `json:"state"`
	Count     int64           `json:"count"`
	Attempts  int             `json:"attempts"`
	WaitedUS  int64           `json:"waited_us"`
	HeldUS    int64           `json:"held_us"`
	EnteredNS int64           `json:"entered_ns"`
	LeftNS    int64           `json:"left_ns"`
	Lines     json.RawMessage `json:"lines"` // of a problem, they are numbers
}

// line is one of a receipt, or of a sale.
type line struct {
	Remaining, Count, Cancelled int64
	GivenBack                   int64 `json:"given_back"`
}

// refusals are the words for the types of problems.
var refusals = map[string]string{
	"unknown-goods": "unknown item", "idempotency-key-reused": "key reused", "idempotency-key-unsupported": "no keys",
	"no-orders": "no orders", "no-reservations": "no reservations",
	"unknown-sale": "unknown sale", "more-than-sold": "more than sold", "cancelled": "cancelled",
	"unknown-reservation": "unknown reservation", "reservation-confirmed": "refused: confirmed",
	"reservation-cancelled": "refused: cancelled", "reservation-expired": "refused: expired",
	"outcome-unknown": Unknown, "internal": Unknown, "busy": Busy, "in-progress": Busy, "unavailable": Busy,
}

// answer puts a reply into the words of the model.
func (c *client) answer(q Request, status int, a reply) string {
	_, problem, refused := strings.Cut(a.Type, "/problems/")
	switch {
	case refused && problem == "sold-out" && a.Remaining != nil:
		return c.blame(q, a) + fmt.Sprintf("sold out at %d", *a.Remaining)
	case refused && problem == "unknown-goods":
		return c.blame(q, a) + "unknown item"
	case refused:
		return cmp.Or(refusals[problem], problem)
	case status >= http.StatusInternalServerError:
		return Unknown
	}
	var lines []line
	_ = json.Unmarshal(a.Lines, &lines) // wrong ones make a wrong answer
	switch q.Verb {
	case Set, Restock:
		if a.Stock != nil {
			return fmt.Sprintf("%d in stock", *a.Stock)
		}
	case Confirm, Release, Find:
		return a.State
	case Hold:
		return c.held(q, a)
	case Cancel, Look:
		words := []string{a.State}
		for _, l := range lines {
			words = append(words, fmt.Sprintf("%d/%d/%d", l.Count, l.Cancelled, l.GivenBack))
		}
		return strings.Join(words, " ")
	case Order:
		words := make([]string, 0, len(lines)+1)
		for _, l := range lines {
			words = append(words, fmt.Sprint(l.Remaining))
		}
		return strings.Join(append(words, "remain"), " ")
	}
	if a.Remaining == nil {
		return "sold" + contradiction(q, a)
	}
	return fmt.Sprintf("%d remain", *a.Remaining) + contradiction(q, a)
}

// contradiction says which fields of a receipt contradict the request, or each other; it is empty if none do.
func contradiction(q Request, a reply) string {
	switch {
	case a.Count != q.Lines[0].Count:
		return fmt.Sprintf(", but count is %d", a.Count)
	case a.Attempts < 1 || a.WaitedUS < 0 ||
		a.HeldUS != (a.LeftNS-a.EnteredNS)/1000:
		return fmt.Sprintf(", but attempts is %d, waited_us %d, held_us %d, entered_ns %d and left_ns %d",
			a.Attempts, a.WaitedUS, a.HeldUS, a.EnteredNS, a.LeftNS)
	}
	return ""
}

// blame names the item of an order that was refused.
func (c *client) blame(q Request, a reply) string {
	for letter, id := range c.items {
		if id == a.GoodsID && q.Verb == Order {
			return string(letter) + ": "
		}
	}
	return ""
}

// held tells of a new reservation, or of one that is there already.
func (c *client) held(q Request, a reply) string {
	if a.Remaining != nil {
		c.holds[q.Name] = a.ID
		return fmt.Sprintf("%d remain", *a.Remaining)
	}
	for name, id := range c.holds {
		if id == a.ID {
			return name + " " + a.State
		}
	}
	return "another reservation " + a.State
}

// Left implements Service.
func (c *client) Left(ctx context.Context, store string, item byte) (int64, error) {
	address := fmt.Sprintf("%s/stock/%d?store=%s", c.Replicas[0], c.item(item), store)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := c.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var a reply
	err = json.NewDecoder(response.Body).Decode(&a)
	if err == nil && a.Stock == nil {
		err = errors.New("the reply has no stock")
	}
	if err != nil {
		return 0, fmt.Errorf("GET %s: %s: %w", address, response.Status, err)
	}
	return *a.Stock, nil
}
