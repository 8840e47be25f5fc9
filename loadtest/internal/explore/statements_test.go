package explore_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
	"stock/migrations"
)

var updateStatements = flag.Bool("update", false, "rewrite docs/statements.json")

const statementsFile = "../../../docs/statements.json"

// statements are what the strategies send to their stores. The pages of docs/strategies are made from them.
type statements struct {
	Tables     map[string]string                `json:"tables"`     // what SHOW CREATE TABLE says on MariaDB
	Scripts    map[string]string                `json:"scripts"`    // sources, by file
	Strategies map[string]map[string][]exchange `json:"strategies"` // by what is asked for
}

// exchange is a message to a store, and its reply.
type exchange struct {
	Store string `json:"store"`
	Text  string `json:"text"`
	Reply string `json:"reply"`
	Times int    `json:"times,omitempty"` // how many servers got it, if it is more than one
}

// The item that is sold, its units before the first request, and what it is called in the documents.
const (
	recordedItem  = 7_000_000
	recordedStock = 800
	documentsItem = "42"
)

// recorder is the gate of proxies that let everything pass. It notes what passes in the order in which it arrived.
type recorder struct {
	mu    sync.Mutex
	heard time.Time
	seen  []*wire.Exchange
	under int // exchanges that are under way
}

func (r *recorder) Arrive(e *wire.Exchange, _ <-chan struct{}) wire.Action {
	e.Noted()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.seen, r.under = time.Now(), append(r.seen, e), r.under+1
	return wire.Pass
}

func (r *recorder) Answered(*wire.Exchange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.under = time.Now(), r.under-1
}

func (r *recorder) Heard() {}

// during returns what passes from the beginning of send until nothing is heard for a while after its end.
func (r *recorder) during(quiet time.Duration, send func()) []*wire.Exchange {
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
	send()
	for !r.isQuiet(quiet) {
		time.Sleep(quiet / 4)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *recorder) isQuiet(quiet time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.heard) > quiet && r.under <= 0
}

// studio is a replica whose connections to its stores are recorded.
type studio struct {
	*recorder
	*topology.Replica
	db *sqlx.DB
}

func startStudio(t *testing.T) studio {
	t.Helper()
	ctx, shared := t.Context(), start(t).lab.Topology
	at := shared.Addresses()
	var err error
	at.MySQLDSN, err = serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true}).CreateDatabase(ctx, "stock")
	must.Succeed(t, err)
	master := serverstest.StartRedis(t, servers.RedisOptions{Name: "recorded-redis"}).Addr
	serverstest.StartRedis(t, servers.RedisOptions{Name: "recorded-redis-replica", ReplicaOf: master})
	s := studio{recorder: &recorder{heard: time.Now()}}
	s.db, err = sqlx.Open("mysql", at.MySQLDSN)
	must.Succeed(t, err)
	t.Cleanup(func() { s.db.Close() })
	_, err = migrations.Up(ctx, s.db.DB)
	must.Succeed(t, err)
	asked := redis.NewClient(&redis.Options{Addr: master})
	t.Cleanup(func() { asked.Close() })
	config, err := mysql.ParseDSN(at.MySQLDSN)
	must.Succeed(t, err)
	through := func(protocol wire.Protocol, to string) string {
		p, err := wire.Start(protocol, to, s, asked)
		must.Succeed(t, err)
		t.Cleanup(p.Close)
		return p.Addr()
	}
	config.Addr = through(wire.MySQL, config.Addr)
	at.MySQLDSN, at.Redis, at.RedisReplica = config.FormatDSN(), []string{through(wire.Redis, master)}, true
	at.Redlock = slices.Clone(at.Redlock)
	for i, to := range at.Redlock {
		at.Redlock[i] = through(wire.Redis, to)
	}
	s.Replica, err = shared.StartReplica(ctx, "recorded", at, topology.Options{})
	must.Succeed(t, err)
	t.Cleanup(func() { s.Process().Kill() })
	return s
}

// Each strategy sells, refuses, and answers again, and what it sends is compared with what the documents show. With
// -update, that is rewritten; afterwards, "go test . -update" rewrites the documents.
func TestStatementsAreThoseOnTheWire(t *testing.T) {
	s := startStudio(t)
	service := scenario.Service{URL: s.URL, Admin: s.AdminURL, Client: http.DefaultClient}
	all, err := service.Strategies(t.Context())
	must.Succeed(t, err)
	got := statements{Tables: s.tables(t), Scripts: map[string]string{}, Strategies: map[string]map[string][]exchange{}}
	files := scriptFiles(t)
	for i, strategy := range all {
		if strategy.Baseline() {
			continue
		}
		if why := strategy.Unavailable[strategy.Stores[0]]; why != "" && !*updateStatements {
			t.Logf("%s is not compared: %s", strategy.Name, why)
			continue
		}
		item := int64(recordedItem + i)
		must.Succeed(t, service.SetStock(t.Context(), map[int64]int64{item: recordedStock}))
		got.Strategies[strategy.Name] = map[string][]exchange{}
		for what, exchanges := range s.record(t, strategy, item) {
			got.Strategies[strategy.Name][what] = legible(exchanges, item, files, got.Scripts)
		}
	}
	if *updateStatements {
		must.Succeed(t, os.WriteFile(statementsFile, indented(t, got), 0o644))
		return
	}
	compareStatements(t, got)
}

// record returns what a strategy sends for requests that it gets one by one. A first request comes before, because a
// process prepares some things once: it connects, loads scripts, and looks whether the item exists.
func (s studio) record(t *testing.T, strategy scenario.Strategy, item int64) map[string][]*wire.Exchange {
	t.Helper()
	c := &recordedClient{studio: s, t: t, strategy: strategy, item: item, left: recordedStock}
	c.quiet = 20 * time.Millisecond
	if strategy.WriteBehind {
		c.quiet = 200 * time.Millisecond
	}
	c.sell("", 2)
	all := map[string][]*wire.Exchange{"sale": c.sell("", 2), "refusal": c.sell("", recordedStock)}
	if len(strategy.Reservations) > 0 {
		c.hold()
		held, hold := c.hold()
		all["hold"], all["confirmation"] = hold, c.end(held, history.Confirm)
		held, _ = c.hold()
		all["cancellation of a hold"] = c.end(held, history.Cancel)
	}
	if strategy.Idempotent {
		c.sell("first", 2)
		all["sale with a key"], all["the same again"] = c.sell("order", 2), c.sell("order", 2)
	}
	if strategy.Idempotent && recommended(t, strategy.Name) {
		all["refusal with a key"] = c.sell("large", recordedStock)
		c.sell("", c.left-1)
		all["the same again when too few units are left"] = c.sell("order", 2)
		c.cancel("first")
		all["cancellation of the sale"] = c.cancel("order")
	}
	return all
}

// recommended reports whether loadtest choose may end in a strategy. Its page shows more.
func recommended(t *testing.T, name string) bool {
	t.Helper()
	var choice struct{ Strategies map[string]any }
	text, err := os.ReadFile("../../choose.json")
	if err == nil {
		err = json.Unmarshal(text, &choice)
	}
	must.Succeed(t, err)
	return choice.Strategies[name] != nil
}

// recordedClient sends requests for an item, and returns what they have a strategy send.
type recordedClient struct {
	studio
	t        *testing.T
	strategy scenario.Strategy
	item     int64
	left     int64 // units of the item
	quiet    time.Duration
}

func (c *recordedClient) load() traffic.Load {
	return traffic.Load{Strategy: c.strategy.Name, Store: c.strategy.Stores[0], Timeout: 5 * time.Second}
}

func (c *recordedClient) sell(key string, count int64) []*wire.Exchange {
	c.t.Helper()
	load := c.load()
	load.Keys = key != ""
	op := history.Op{Kind: history.Deduct, Name: c.name(key), GoodsID: c.item, Count: count}
	want := history.Sold
	if count >= recordedStock && c.strategy.Claim.TwoReplicas != "oversells" {
		want = history.SoldOut
	}
	return c.during(c.quiet, func() {
		answer, err := traffic.SendOne(c.t.Context(), c.URL, load, op)
		if err != nil || answer.Outcome != want {
			c.t.Errorf("%s: a request for %d units was answered %q %s (%v), want %q", c.strategy.Name, count,
				answer.Outcome, answer.Error, err, want)
		}
		if want == history.Sold && !answer.Replayed {
			c.left -= count
		}
	})
}

// name returns the name of a sale, which is its key.
func (c *recordedClient) name(key string) string { return fmt.Sprintf("%s-%d", key, c.item) }

// cancel cancels a sale by its key.
func (c *recordedClient) cancel(key string) []*wire.Exchange {
	c.t.Helper()
	cancellation := history.Op{Kind: history.CancelSale, Name: c.name(key), GoodsID: c.item}
	return c.during(c.quiet, func() {
		done, err := traffic.SendOne(c.t.Context(), c.URL, c.load(), cancellation)
		if err != nil || done.Outcome != history.Done {
			c.t.Errorf("%s: a cancellation was answered %q %s (%v)", c.strategy.Name, done.Outcome, done.Error, err)
		}
	})
}

func (c *recordedClient) hold() (history.Op, []*wire.Exchange) {
	c.t.Helper()
	c.left -= 2
	return c.call(history.Op{Kind: history.Hold, GoodsID: c.item, Count: 2, TTLMS: 60_000})
}

// end confirms or cancels a hold.
func (c *recordedClient) end(held history.Op, kind string) []*wire.Exchange {
	c.t.Helper()
	if held.Kind = kind; kind == history.Cancel {
		c.left += 2
	}
	_, exchanges := c.call(held)
	return exchanges
}

func (c *recordedClient) call(call history.Op) (answer history.Op, exchanges []*wire.Exchange) {
	c.t.Helper()
	exchanges = c.during(c.quiet, func() {
		var err error
		if answer, err = traffic.SendOne(c.t.Context(), c.URL, c.load(), call); err != nil || answer.Outcome != history.Done {
			c.t.Errorf("%s: %s was answered %q %s (%v)", c.strategy.Name, call.Kind, answer.Outcome, answer.Error, err)
		}
	})
	return answer, exchanges
}

// of returns the exchanges that name an item, or what was made for it, and what begins and ends their transactions. A
// replica does more in the background.
func of(item int64, exchanges []*wire.Exchange) (all []*wire.Exchange) {
	names := []string{strconv.FormatInt(item, 10)}
	keep, opening, last := make([]bool, len(exchanges)), map[*wire.Conn][]int{}, map[*wire.Conn]bool{}
	for i, e := range exchanges {
		switch {
		case begins.MatchString(e.Text):
			opening[e.Conn] = append(opening[e.Conn], i)
		case ends.MatchString(e.Text):
			keep[i] = last[e.Conn]
		default:
			keep[i] = ofHold.MatchString(e.Text) || !looks.MatchString(e.Text) &&
				slices.ContainsFunc(names, func(name string) bool { return strings.Contains(e.Text, name) })
			last[e.Conn] = keep[i]
			for _, before := range opening[e.Conn] {
				keep[before] = keep[i]
			}
			delete(opening, e.Conn)
		}
		if keep[i] {
			names = append(names, madeID.FindAllString(e.Text, -1)...)
		}
	}
	for i, e := range exchanges {
		if keep[i] {
			all = append(all, e)
		}
	}
	return all
}

var (
	begins = regexp.MustCompile(`^(SET TRANSACTION .*|START TRANSACTION)$`)
	ends   = regexp.MustCompile(`^(COMMIT|ROLLBACK|UNWATCH|WAIT .*)$`)
	looks  = regexp.MustCompile(`^(XINFO|EXISTS|XPENDING|XAUTOCLAIM|XCLAIM) `) // for sales of others
	ofHold = regexp.MustCompile(`reservation .*\b0x[0-9a-f]{32}\b`)
	madeID = regexp.MustCompile(`\b0x[0-9a-f]{32}\b`)
)

// legible returns what was sent without what differs from run to run. It adds the scripts.
func legible(exchanges []*wire.Exchange, item int64, files, scripts map[string]string) (all []exchange) {
	placeholders := placeholdersIn(exchanges)
	clean := func(text string) string {
		text = strings.ReplaceAll(text, strconv.FormatInt(item, 10), documentsItem)
		for value, name := range placeholders {
			text = strings.ReplaceAll(text, value, name)
		}
		for _, r := range replacements {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
		return strings.Join(strings.Fields(strings.ReplaceAll(text, "\n", " \x00 ")), " ")
	}
	for _, e := range of(item, exchanges) {
		text := e.Text
		for _, source := range e.Scripts {
			name := fileOf(source, files)
			scripts[name] = source
			text = asTyped(text, name)
		}
		separator := "\n"
		if e.Store == "mysql" { // where the source breaks a statement does not matter
			separator = " "
		}
		next := exchange{Store: e.Store, Text: strings.ReplaceAll(clean(text), " \x00 ", separator), Reply: clean(e.Reply)}
		if n := len(all); n > 0 && all[n-1].Store == next.Store && all[n-1].Text == next.Text {
			all[n-1].Times = max(1, all[n-1].Times) + 1
			continue
		}
		all = append(all, next)
	}
	return all
}

// placeholdersIn finds the values in some exchanges that only their context explains.
func placeholdersIn(exchanges []*wire.Exchange) map[string]string {
	names := map[string]string{}
	for _, e := range exchanges {
		for _, found := range explained.FindAllStringSubmatch(e.Text+"\n"+e.Reply, -1) {
			names[cmp.Or(found[2], found[3])] = "<" + cmp.Or(found[1], "epoch") + ">"
		}
	}
	return names
}

// explained matches epochs and tokens: "epoch = 123", "fence = 123", and an epoch as the last column of a row.
var explained = regexp.MustCompile(`\b(epoch|fence) = (\d{13,})|row: \d+, (\d{13,})$`)

var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{13}-\d+`), "<entry>"},
	{regexp.MustCompile(`'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?'`), "'<time>'"},
	{regexp.MustCompile(`0x[0-9a-f]{33,}`), "0x<fingerprint>"},
	{regexp.MustCompile(`0x[0-9a-f]{32}`), "0x<id>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<fingerprint>"},
	{regexp.MustCompile(`locks:[A-Z2-7]{26} \d+`), "locks:<process> <number>"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "<owner>"},
	{regexp.MustCompile(`fence (=|<) (\d+|<fence>)`), "fence $1 <token>"},
	{regexp.MustCompile(`slot = \d+`), "slot = <slot>"},
	{regexp.MustCompile(`'ledger\.PRIMARY'`), "'PRIMARY'"}, // as MySQL calls it
	{regexp.MustCompile(`16 rows: .*`), "16 rows: …"},      // which of them has sold is chosen at random
	{regexp.MustCompile(`<fence>`), "<token>"},
	{regexp.MustCompile(`\d{13,}`), "<number>"},
	{regexp.MustCompile(`\d+…`), "…"}, // the rest of the reply is left out
}

// asTyped returns a command that runs a script as Redis gets it, with the script's name in place of the hash.
func asTyped(text, name string) string {
	title := regexp.MustCompile(`\{[^{}]*\} KEYS (.*?) ?ARGV`).FindStringSubmatchIndex(text)
	if title == nil {
		return text
	}
	keys := text[title[2]:title[3]]
	return fmt.Sprintf("%s<%s> %d %s%s", text[:title[0]], name, len(strings.Fields(keys)), keys, text[title[1]:])
}

// scriptFiles returns the scripts of the service, by file.
func scriptFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("../../../internal", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".lua" {
			var text []byte
			text, err = os.ReadFile(path)
			files[filepath.Base(path)] = string(text)
		}
		return err
	})
	must.Succeed(t, err)
	return files
}

// fileOf returns the file that a script ends with; the files before it are what several scripts share.
func fileOf(source string, files map[string]string) string {
	name, most := "redsync", 60
	for file, text := range files {
		same := 0
		for same < min(len(text), len(source)) && text[len(text)-1-same] == source[len(source)-1-same] {
			same++
		}
		if same > most {
			name, most = file, same
		}
	}
	return name
}

// tables returns the statements that make the tables; nil unless the server is MariaDB: others write them differently.
func (s studio) tables(t *testing.T) map[string]string {
	t.Helper()
	var version string
	var names []string
	err := errors.Join(s.db.Get(&version, "SELECT VERSION()"), s.db.Select(&names, "SHOW TABLES"))
	must.Succeed(t, err)
	if !strings.Contains(version, "MariaDB") {
		return nil
	}
	all := map[string]string{}
	for _, name := range names {
		var text string
		must.Succeed(t, s.db.QueryRow("SHOW CREATE TABLE "+name).Scan(&name, &text))
		text = strings.NewReplacer("`", "").Replace(text)
		all[name] = regexp.MustCompile(`\) ENGINE=.*`).ReplaceAllString(text, ") ENGINE=InnoDB")
	}
	delete(all, "goose_db_version")
	return all
}

// compareStatements compares what was recorded with what the documents show.
func compareStatements(t *testing.T, got statements) {
	t.Helper()
	var want statements
	text, err := os.ReadFile(statementsFile)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	must.Succeed(t, err)
	const fix = "go test ./loadtest/internal/explore -run TestStatementsAreThoseOnTheWire -update, and " +
		"go test . -update"
	for name, exchanges := range got.Strategies {
		for what, sent := range exchanges {
			if shown := want.Strategies[name][what]; !slices.Equal(sent, shown) {
				t.Errorf("%s, %s: the messages are\n%s\nbut the documents show\n%s\n%s", name, what, indented(t, sent),
					indented(t, shown), fix)
			}
		}
	}
	for name, source := range got.Scripts {
		if source != want.Scripts[name] {
			t.Errorf("the documents show another %s: %s", name, fix)
		}
	}
	if got.Tables != nil && !maps.Equal(got.Tables, want.Tables) {
		t.Errorf("the documents show other tables than\n%s\n%s", indented(t, got.Tables), fix)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // readable placeholders
	encoder.SetIndent("", "  ")
	must.Succeed(t, encoder.Encode(v))
	return b.Bytes()
}
