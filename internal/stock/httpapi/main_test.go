package httpapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/httpapi"
	"stock/internal/stock/stocktest"
	"stock/migrations"
)

var shared serverstest.Servers

func TestMain(m *testing.M) {
	// Both drivers log every failed connection to standard error.
	logging.Disable()
	_ = mysql.SetLogger(&mysql.NopLogger{}) // fails only for nil
	code := shared.Run(m)
	if unseen := unseenProblems(); code == 0 && everyTestRan() && len(unseen) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: no test receives these problem types of openapi.json: %v\n", unseen)
		code = 1
	}
	os.Exit(code)
}

func everyTestRan() bool {
	for _, filter := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(filter).Value.String() != "" {
			return false
		}
	}
	return true
}

// replica is a service with both listeners.
type replica struct {
	*httpapi.API
	public, admin string // URLs
	log           *stocktest.Log
	pauses        sync.Map // stocktest.PauseFunc by request id: see park
}

// options of newReplica. The zero value has no servers and the default catalogue.
type options struct {
	deps      stock.Deps
	catalogue []stock.Strategy
	timeout   time.Duration
	maxTTL    time.Duration // 24 h if 0
	maxHold   time.Duration // 10 s if 0; below 0, hold_ms is not accepted
	sweeps    bool          // put back the units of expired reservations

	requireKey bool
	strategy   string // by default the first of the catalogue
}

func newReplica(t testing.TB, o options) *replica {
	t.Helper()
	if o.catalogue == nil {
		o.catalogue = catalogue.Strategies
	}
	o.deps.LockWait = cmp.Or(o.deps.LockWait, 10*time.Second)
	o.deps.MySQLLocks = o.deps.MySQL // tests hold few locks
	o.deps.MySQLHealth = cmp.Or(o.deps.MySQLHealth, o.deps.MySQL)
	o.deps.Lease, o.deps.Poll = 30*time.Second, 5*time.Millisecond
	strategies, err := catalogue.Build(o.deps, o.catalogue)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, strategies.Close()) })
	if o.sweeps {
		strategies.Sweep()
	}
	r := &replica{log: &stocktest.Log{}}
	r.API, err = httpapi.New(httpapi.Config{
		Strategies:      strategies,
		Deps:            o.deps,
		DefaultStrategy: cmp.Or(o.strategy, o.catalogue[0].Name),
		Replica:         "a",
		RequestTimeout:  cmp.Or(o.timeout, 30*time.Second),
		MaxTTL:          cmp.Or(o.maxTTL, 24*time.Hour),
		RequireKey:      o.requireKey,
		MaxHold:         max(cmp.Or(o.maxHold, stock.MaxHold), 0),
		AdminNames:      []string{"stock.example.com"},
		Registry:        prometheus.NewRegistry(),
		Version:         httpapi.Version{Version: "v1.2.3", Revision: "abc", Go: "go1.26"},
		Log:             slog.New(slog.NewTextHandler(r.log, nil)),
	})
	must.Succeed(t, err)
	r.public, r.admin = serve(t, r.pausing(r.Public())), serve(t, r.Admin())
	return r
}

// serve returns the URL. The end of the test cancels all requests: a failed test may leave a parked one, which would
// keep the listener from closing.
func serve(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.BaseContext = func(net.Listener) context.Context { return t.Context() }
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// database returns a new migrated MySQL database.
func database(t testing.TB) *sqlx.DB {
	t.Helper()
	return migrated(t, stocktest.MySQL(t, shared.Database(t)))
}

func migrated(t testing.TB, db *sqlx.DB) *sqlx.DB {
	t.Helper()
	_, err := migrations.Up(t.Context(), db.DB)
	must.Succeed(t, err)
	return db
}

// redisClient returns a client of a new Redis database.
func redisClient(t testing.TB) redis.UniversalClient {
	t.Helper()
	return serverstest.RedisClient(t, shared.Redis(t))
}

// reply is the reply to a request.
type reply struct {
	status int
	header http.Header
	raw    []byte
	json   map[string]any // nil if the body is not an object
}

// text returns a member of the reply as JSON.
func (r reply) text(t testing.TB, member string) string {
	t.Helper()
	text, err := json.Marshal(r.json[member])
	must.Succeed(t, err)
	return string(text)
}

// slug returns the last part of the type of a problem.
func (r reply) slug() string {
	text, _ := r.json["type"].(string)
	return strings.TrimPrefix(text, "/problems/")
}

// request is a request to send. A body has the Content-Type application/json unless the header has another.
type request struct {
	method, url, body string
	header            map[string]string
}

// do sends a request and checks the reply against openapi.json.
func do(t testing.TB, r request) reply {
	t.Helper()
	reply, err := try(t.Context(), r)
	must.Succeed(t, err)
	checkReply(t, r, reply)
	return reply
}

func try(ctx context.Context, r request) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return reply{}, err
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	req.Host = r.header["Host"] // if empty, that of the URL
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	got := reply{status: response.StatusCode, header: response.Header, raw: raw}
	_ = json.Unmarshal(raw, &got.json) // not every reply is a JSON object
	return got, nil
}

func post(t testing.TB, url, body string) reply {
	t.Helper()
	return do(t, request{method: http.MethodPost, url: url, body: body})
}

func get(t testing.TB, url string) reply {
	t.Helper()
	return do(t, request{method: http.MethodGet, url: url})
}

// want fails the test if the reply has another status or is another problem.
func (r reply) want(t testing.TB, status int, slug string) reply {
	t.Helper()
	if r.status != status || r.slug() != slug {
		t.Fatalf("got %d %s, want %d %s: %s", r.status, r.slug(), status, slug, r.raw)
	}
	return r
}

var eventually = serverstest.Eventually
