package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/nginx"
)

// strange adds strategies to the catalogue that end in unusual ways.
var strange = append(slices.Clone(catalogue.Strategies),
	strangeStrategy("panics", func() error { panic("the secret cause") }),
	strangeStrategy("fails", func() error { return errors.New("the secret cause") }),
	strangeStrategy("fenced", func() error { return fmt.Errorf("%w: token 7", stock.ErrFenced) }),
	idempotent(strangeStrategy("confirms", func() error { return nil })),
	idempotent(strangeStrategy("key-reused", func() error { return stock.ErrKeyReused })),
	idempotent(strangeStrategy("in-progress", func() error { return stock.ErrInProgress })),
	strangeStrategy("unknown-and-busy", func() error { return errors.Join(stock.ErrBusy, stock.ErrUnknown) }),
)

type deductFunc func() error

func (f deductFunc) Deduct(context.Context, stock.Request) (stock.Receipt, error) {
	return stock.Receipt{Attempts: 1}, f()
}

func strangeStrategy(name string, end deductFunc) stock.Strategy {
	s := catalogue.Strategies[0]
	s.Name, s.Stores, s.Needs = name, []stock.Store{stock.NoStore}, nil
	s.New = func(stock.Deps) stock.Deducter { return end }
	return s
}

// idempotent makes a strategy accept idempotency keys.
func idempotent(s stock.Strategy) stock.Strategy {
	s.NoKeys = ""
	s.Claim.ClientRetry = stock.RetryRepeatsAnswer
	return s
}

func key(value string) map[string]string { return map[string]string{"Idempotency-Key": value} }

var (
	exchange = regexp.MustCompile(`^(\w+) (\S+)((?: \(\S+: [^)]*\))*)(?: (.+))? -> (\d+)(?: ([\w-]+))?(?:: (.+))?$`)
	headerIn = regexp.MustCompile(`\((\S+): ([^)]*)\)`)
	repeated = regexp.MustCompile(`<(\d+)\*([^>]*)>`)
)

// TestContract plays the requests in testdata/contract.txt.
func TestContract(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{
		deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}, catalogue: strange, strategy: "update",
	})
	for goodsID, units := range map[int]int{1: 6000, 2: 3, 4: 1} {
		do(t, request{
			method: "PUT", url: fmt.Sprintf("%s/admin/stock/%d", r.admin, goodsID), body: fmt.Sprintf(`{"stock":%d}`, units),
		}).want(t, 200, "")
	}
	contract, err := os.ReadFile("testdata/contract.txt")
	must.Succeed(t, err)
	var id string // of the last reservation
	for line := range strings.Lines(string(contract)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t.Run(line, func(t *testing.T) {
			got := checkExchange(t, r, strings.ReplaceAll(line, "{id}", id))
			if answered, ok := got.json["id"].(string); ok {
				id = answered
			}
		})
	}
	for _, logged := range []string{"the secret cause", "request_id=broken", "Outcome unknown"} {
		if r.log.Count(logged) == 0 {
			t.Errorf("the log lacks %q", logged)
		}
	}
}

// checkExchange sends the request of a line, and checks the reply, also against openapi.json.
func checkExchange(t *testing.T, r *replica, line string) reply {
	t.Helper()
	parts := exchange.FindStringSubmatch(line)
	if parts == nil {
		t.Fatal("the line is not of the form METHOD PATH (HEADER: VALUE) BODY -> STATUS SLUG: TEXT")
	}
	for i, part := range parts[:5] {
		parts[i] = repeated.ReplaceAllStringFunc(part, func(match string) string {
			text := repeated.FindStringSubmatch(match)
			times, _ := strconv.Atoi(text[1])
			return strings.Repeat(text[2], times)
		})
	}
	req := request{method: parts[1], url: r.public + parts[2], body: parts[4], header: map[string]string{}}
	if !strings.HasPrefix(parts[2], "/") {
		req.url = r.admin + "/" + parts[2]
	}
	for _, header := range headerIn.FindAllStringSubmatch(parts[3], -1) {
		req.header[header[1]] = header[2]
	}
	status, _ := strconv.Atoi(parts[5])
	got := do(t, req).want(t, status, parts[6])
	text := string(got.raw)
	if strings.Contains(text, "secret") {
		t.Errorf("the reply has internals: %s", text)
	}
	for name := range got.header {
		text += "\n" + name + ": " + got.header.Get(name)
	}
	for part := range strings.SplitSeq(parts[7], " & ") {
		part, unwanted := strings.CutPrefix(part, "without ")
		if strings.Contains(text, part) == unwanted {
			t.Errorf("the reply is %s\nwant %s", text, parts[7])
		}
	}
	if allowed := got.header.Get("Allow"); status == http.StatusMethodNotAllowed && !strings.Contains(parts[7], allowed) {
		t.Errorf("Allow is %q", allowed)
	}
	return got
}

func TestEveryProblemTypeIsExplainedAtItsURL(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, kind := range problemTypes() {
		slug := strings.TrimPrefix(kind.(string), "/problems/")
		if got := get(t, r.public+kind.(string)).want(t, 200, slug); got.json["description"] == "" {
			t.Errorf("%s has no description", kind)
		}
	}
}

func TestEveryProblemOfNginxIsExplained(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	problems := regexp.MustCompile(`"type":"(/problems/[^"]+)","title":"([^"]+)"`).FindAllStringSubmatch(nginx.Main(), -1)
	if len(problems) == 0 {
		t.Fatal("nginx.conf has no problems")
	}
	for _, problem := range problems {
		explained := get(t, r.public+problem[1]).want(t, http.StatusOK, path.Base(problem[1]))
		if title := explained.json["title"]; title != problem[2] {
			t.Errorf("the title of %s is %q, but nginx calls it %q", problem[1], title, problem[2])
		}
	}
}

func TestStrategiesListsTheCatalogueWithReasons(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	got := get(t, r.public+"/strategies").want(t, 200, "")
	rows := got.json["strategies"].([]any)
	if len(rows) != len(catalogue.Strategies) || got.json["default"] != catalogue.Strategies[0].Name {
		t.Fatalf("%d strategies, default %v", len(rows), got.json["default"])
	}
	for i, s := range catalogue.Strategies {
		row := rows[i].(map[string]any)
		unavailable := row["unavailable"].(map[string]any)
		if row["name"] != s.Name || row["summary"] != s.Summary ||
			row["control"] != s.Control || row["tells_remaining"] != s.TellsRemaining() {
			t.Errorf("row %d is %v", i, row)
		}
		var needs []stock.Need
		for _, need := range row["needs"].([]any) {
			needs = append(needs, stock.Need(need.(string)))
		}
		if want := s.NeedsOn(s.Stores[0]); !slices.Equal(needs, want) || (len(want) == 0) != (s.Stores[0] == stock.NoStore) {
			t.Errorf("%s needs %v, want %v", s.Name, needs, want)
		}
		for _, on := range s.Stores {
			reason, missing := unavailable[string(on)].(string)
			if missing != (on != stock.NoStore) || missing && !strings.Contains(reason, "not configured: ") {
				t.Errorf("%s on %s: the reason is %q", s.Name, on, reason)
			}
		}
	}
}
