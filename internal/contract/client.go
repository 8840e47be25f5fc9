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
	"net/http/httptrace"
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
	Admins   []string       // URLs of the admin listeners
	Ways     map[string]Way // by the strategy that a request names
	NewItem  func() int64   // returns the id of an item that nobody uses, greater than those before
	// KeyPrefix is before each key of a script. If it is empty, each script has one of its own.
	KeyPrefix string
	// LetPass carries out Later and Prune, for some items and the keys with a prefix. It may be nil.
	LetPass func(ctx context.Context, q Request, items []int64, keyPrefix string) error
	// Pending reports whether sales of some items are on their way to MySQL. It may be nil.
	Pending func(ctx context.Context, items []int64) (bool, error)
}

// client is a Service over HTTP.
type client struct {
	*Site
	prefix string // of the keys of this script

	mu    sync.Mutex
	items map[byte]int64
	holds map[string]string // id by name
}

// Way is a strategy on a store.
type Way struct{ Strategy, Store string }

var scripts atomic.Int64

// Service returns the service for one script, or for one race.
func (s *Site) Service() Service {
	prefix := cmp.Or(s.KeyPrefix, fmt.Sprintf("contract-%d-%d-", time.Now().UnixNano(), scripts.Add(1)))
	return &client{Site: s, prefix: prefix, items: map[byte]int64{}, holds: map[string]string{}}
}

// item returns the id of an item. The ids of a script have the order of their letters.
func (c *client) item(letter byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for known := byte('a'); known <= letter; known++ {
		if c.items[known] == 0 {
			c.items[known] = c.NewItem()
		}
	}
	return c.items[letter]
}

// ids lists the ids of the items.
func (c *client) ids() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.items))
}

// reservation returns the id of a reservation, or one that no reservation has.
func (c *client) reservation(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.holds[name], "01936b8a-0000-7000-8000-000000000000")
}

// Ask implements Service.
func (c *client) Ask(ctx context.Context, q Request) (string, error) {
	if q.Verb == Later || q.Verb == Prune {
		return "", c.LetPass(ctx, q, c.ids(), c.prefix)
	}
	r, err := c.request(ctx, q)
	if err != nil {
		return "", err
	}
	if q.Manner == Leave {
		sent, hangUp := hangingUp(r)
		defer hangUp()
		r = sent
	}
	response, err := c.HTTP.Do(r)
	if err != nil {
		return Unknown, ctx.Err()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || q.Manner == Leave {
		return Unknown, ctx.Err()
	}
	var a reply
	if err := json.Unmarshal(body, &a); err != nil {
		return fmt.Sprintf("%d %s", response.StatusCode, body), nil
	}
	answer := c.answer(q, response, a)
	if response.Header.Get("Idempotency-Replayed") == "true" {
		answer += ", replayed"
	}
	return answer, nil
}

// hangingUp returns a request whose client hangs up when it has been sent.
func hangingUp(r *http.Request) (*http.Request, context.CancelFunc) {
	ctx, hangUp := context.WithCancel(r.Context())
	return r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { hangUp() },
	})), hangUp
}

// request makes the HTTP request.
func (c *client) request(ctx context.Context, q Request) (*http.Request, error) {
	way, base := c.Ways[q.By], c.Replicas[q.Replica%len(c.Replicas)]+"/stock"
	body := map[string]any{"strategy": way.Strategy, "store": way.Store}
	method := http.MethodPost
	var path string
	switch q.Manner {
	case Try:
		body["wait_ms"] = 0
	case Work:
		body["hold_ms"] = 1
	}
	switch q.Verb {
	case Sell:
		path, body["goods_id"], body["count"] = "/deduct", c.item(q.Lines[0].Item), q.Lines[0].Count
	case Hold:
		path, body["goods_id"], body["count"] = "/reservations", c.item(q.Lines[0].Item), q.Lines[0].Count
		body["ttl_ms"] = q.holdTime().Milliseconds()
	case Order:
		path, body["lines"] = "/orders", c.lines(q.Lines, "count")
	case Confirm, Release, Find:
		path = "/reservations/" + c.reservation(q.Name)
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
		base, path = c.Admins[q.Replica%len(c.Admins)]+"/admin/stock", fmt.Sprintf("/%d", c.item(q.Lines[0].Item))
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
	GoodsID                     int64 `json:"goods_id"`
	Remaining, Count, Cancelled int64
	GivenBack                   int64 `json:"given_back"`
}

// refusal is what a problem says, in the words of the model, and the status that it comes with.
type refusal struct {
	words  string
	status int
}

// refusals by the type of the problem.
var refusals = map[string]refusal{
	"sold-out":                    {"sold out", http.StatusConflict},
	"unknown-goods":               {"unknown item", http.StatusNotFound},
	"overstocked":                 {"overstocked", http.StatusConflict},
	"idempotency-key-reused":      {"key reused", http.StatusUnprocessableEntity},
	"idempotency-key-unsupported": {"no keys", http.StatusBadRequest},
	"no-orders":                   {"no orders", http.StatusBadRequest},
	"no-reservations":             {"no reservations", http.StatusBadRequest},
	"unknown-sale":                {"unknown sale", http.StatusNotFound},
	"more-than-sold":              {"more than sold", http.StatusUnprocessableEntity},
	"cancelled":                   {"cancelled", http.StatusConflict},
	"unknown-reservation":         {"unknown reservation", http.StatusNotFound},
	"reservation-confirmed":       {"refused: confirmed", http.StatusConflict},
	"reservation-cancelled":       {"refused: cancelled", http.StatusConflict},
	"reservation-expired":         {"refused: expired", http.StatusConflict},
	"outcome-unknown":             {Unknown, http.StatusInternalServerError},
	"internal":                    {Unknown, http.StatusInternalServerError},
	"busy":                        {Busy, http.StatusServiceUnavailable},
	"unavailable":                 {Busy, http.StatusServiceUnavailable},
	"in-progress":                 {Busy, http.StatusConflict},
}

// refused puts a problem into the words of the model.
func (c *client) refused(q Request, problem string, response *http.Response, a reply) string {
	r, known := refusals[problem]
	words := r.words
	switch {
	case !known:
		return problem
	case problem == "sold-out" && a.Remaining != nil:
		words = c.blame(q, a) + fmt.Sprintf("sold out at %d", *a.Remaining)
	case problem == "unknown-goods":
		words = c.blame(q, a) + words
	}
	if response.StatusCode != r.status {
		words += fmt.Sprintf(", but the status is %d", response.StatusCode)
	}
	if (problem == "busy" || problem == "in-progress") && response.Header.Get("Retry-After") == "" {
		words += ", but without Retry-After"
	}
	return words
}

// answer puts a reply into the words of the model.
func (c *client) answer(q Request, response *http.Response, a reply) string {
	_, problem, refused := strings.Cut(a.Type, "/problems/")
	right := http.StatusOK
	if q.Verb == Hold {
		right = http.StatusCreated
	}
	switch {
	case refused:
		return c.refused(q, problem, response, a)
	case response.StatusCode >= http.StatusInternalServerError:
		return Unknown
	case response.StatusCode != right:
		return fmt.Sprintf("status %d", response.StatusCode)
	}
	var lines []line
	_ = json.Unmarshal(a.Lines, &lines) // wrong ones make a wrong answer
	switch q.Verb {
	case Set, Restock:
		if a.Stock != nil {
			return fmt.Sprintf("%d in stock", *a.Stock)
		}
	case Confirm, Release, Find:
		if a.ID != c.reservation(q.Name) {
			return a.State + ", but of another reservation"
		}
		return a.State
	case Hold:
		return c.held(q, a)
	case Cancel, Look:
		words := []string{a.State}
		for _, l := range lines {
			words = append(words, fmt.Sprintf("%d%c/%d/%d", l.Count, c.letter(l.GoodsID), l.Cancelled, l.GivenBack))
		}
		return strings.Join(words, " ")
	case Order:
		words := make([]string, 0, len(lines)+1)
		var sold []Line
		for _, l := range lines {
			words, sold = append(words, fmt.Sprint(l.Remaining)), append(sold, Line{c.letter(l.GoodsID), l.Count})
		}
		told := strings.Join(append(words, "remain"), " ")
		if asked := merged(q.Lines); !slices.Equal(sold, asked) {
			told += ", but the lines are " + linesText(sold)
		}
		return told
	}
	if a.Remaining == nil {
		return "sold" + c.contradiction(q, a)
	}
	return fmt.Sprintf("%d remain", *a.Remaining) + c.contradiction(q, a)
}

// contradiction says which fields of a receipt contradict the request, or each other; it is empty if none do.
func (c *client) contradiction(q Request, a reply) string {
	switch sold := (Line{c.letter(a.GoodsID), a.Count}); {
	case sold != q.Lines[0]:
		return fmt.Sprintf(", but for %d%c", sold.Count, sold.Item)
	case a.Attempts < 1 || a.WaitedUS < 0 ||
		a.HeldUS != (a.LeftNS-a.EnteredNS)/1000:
		return fmt.Sprintf(", but attempts is %d, waited_us %d, held_us %d, entered_ns %d and left_ns %d",
			a.Attempts, a.WaitedUS, a.HeldUS, a.EnteredNS, a.LeftNS)
	}
	return ""
}

// blame names the item of an order that was refused.
func (c *client) blame(q Request, a reply) string {
	if q.Verb != Order {
		return ""
	}
	return string(c.letter(a.GoodsID)) + ": "
}

// letter names an item, or is '?'.
func (c *client) letter(id int64) byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for letter, known := range c.items {
		if known == id {
			return letter
		}
	}
	return '?'
}

// held tells of a new reservation, or of one that is there already.
func (c *client) held(q Request, a reply) string {
	if a.Remaining != nil {
		c.mu.Lock()
		c.holds[q.Name] = a.ID
		c.mu.Unlock()
		return fmt.Sprintf("%d remain", *a.Remaining) + c.contradiction(q, a)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[q.Name] == "" {
		c.holds[q.Name] = a.ID // the first answer was lost
	}
	for name, id := range c.holds {
		if id == a.ID {
			return name + " " + a.State
		}
	}
	return "another reservation " + a.State
}

// Pending implements Service.
func (c *client) Pending(ctx context.Context) (bool, error) {
	if c.Site.Pending == nil {
		return false, nil
	}
	return c.Site.Pending(ctx, c.ids())
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
