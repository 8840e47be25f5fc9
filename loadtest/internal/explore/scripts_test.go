package explore

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore/trace"
)

var unlimited = trace.Bounds{Preemptions: -1, Faults: 1}

func startScripts(t *testing.T, lanes int, engine string) *Explorer {
	t.Helper()
	serverstest.Long(t)
	x, err := StartScripts(t.Context(), lanes, engine)
	must.Succeed(t, err)
	t.Cleanup(x.Close)
	return x
}

func loadScript(t *testing.T, text string) *Script {
	t.Helper()
	s, err := LoadScript("shop.star", []byte(text), 2)
	must.Succeed(t, err)
	return s
}

func TestScripts(t *testing.T) {
	t.Parallel()
	x := startScripts(t, 2, MySQL)
	t.Run("replay", func(t *testing.T) { testReplay(t, x) })
	t.Run("mistakes", func(t *testing.T) { testMistakes(t, x, mistakes) })
	t.Run("waits", func(t *testing.T) { testWaits(t, x) })
	t.Run("verdicts", func(t *testing.T) { testVerdicts(t, x) })
	t.Run("hidden", func(t *testing.T) { testHidden(t, x) })
	t.Run("not one step", func(t *testing.T) { testNotOneStep(t, x, notOneStep) })
	t.Run("values", func(t *testing.T) { testValues(t, x, values) })
}

// Damage is found, and a token leads to the same steps and replies. Package plant has mistakes of the explorer with
// which some of these scripts seem to be right.
func testReplay(t *testing.T, x *Explorer) {
	for _, name := range []string{"lock-redis", "skip-locked-once", "ghost-lock"} {
		s := loadFile(t, "../../scripts/"+name+".star")
		r, err := x.ExploreScript(t.Context(), s, unlimited)
		must.Succeed(t, err)
		tokens := 0
		for _, c := range r.Cells {
			for kind, shortest := range c.Shortest {
				tokens++
				o, err := x.ReplayScript(t.Context(), s, shortest.Token)
				if err != nil || o.Kind != kind || !reflect.DeepEqual(told(o), told(shortest.Execution)) {
					t.Errorf("%s: %s: %s instead of %s, %v\n%q\n%q", name, shortest.Token, o.Kind, kind, err, told(o),
						told(shortest.Execution))
				}
			}
		}
		if tokens == 0 {
			t.Errorf("%s: no damage was found", name)
		}
	}
	if _, err := x.ReplayScript(t.Context(), loadScript(t, "def buy(): pass"), "enough:A"); err == nil {
		t.Error("the token of a strategy was replayed")
	}
}

// A step waits if MySQL says so, not because it takes long. When it can go on, it is awaited again.
func testWaits(t *testing.T, x *Explorer) {
	const text = `
def buy(count):
    sql("SET SESSION innodb_lock_wait_timeout = 5")
    sql("BEGIN")
    sql("SELECT stock + SLEEP(0.05) FROM good_stock WHERE goods_id = ?FOR UPDATE", item)
    sql("UPDATE good_stock SET stock = stock - ? WHERE goods_id = ?", count, item)
    sql("COMMIT")
    sql("SELECT stock FROM good_stock WHERE goods_id = ?", item)
`
	const read = "B SELECT stock + SLEEP(0.05) FROM good_stock WHERE goods_id = N"
	for _, c := range []struct {
		lock, token string
		read        []string
		left        int
	}{
		{
			" FOR UPDATE", "script:A.B.A.A.B.B.B.A",
			[]string{read + " FOR UPDATE  (waits)", "B (goes on)" + read[1:] + " FOR UPDATE  → 1 row: 9"}, 7,
		},
		{"", "script:A.B.B.B.B.A", []string{read + "  → 1 row: 10"}, 8},
	} {
		o, err := x.ReplayScript(t.Context(), loadScript(t, strings.Replace(text, "FOR UPDATE", c.lock, 1)), c.token)
		if err != nil {
			t.Error(err)
			continue
		}
		want := slices.Concat(c.read, []string{
			"B UPDATE good_stock SET stock = stock - 2 WHERE goods_id = N  → OK, 1 row",
			"B COMMIT  → OK, 0 rows",
			fmt.Sprintf("B SELECT stock FROM good_stock WHERE goods_id = N  → 1 row: %d", c.left),
			"B => sold",
		})
		got := slices.DeleteFunc(told(o), func(line string) bool { return !strings.HasPrefix(line, "B") })
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// told is what each actor did, without the item, which is another one each time.
func told(o trace.Execution) (lines []string) {
	for _, step := range o.Steps {
		if step.Kind != trace.Passes {
			lines = append(lines, strings.ReplaceAll(step.Actor+" "+step.String(), strconv.FormatInt(o.Item, 10), "N"))
		}
	}
	return lines
}

// What is wrong with a session is told with its place.
func testMistakes(t *testing.T, x *Explorer, cases [][2]string) {
	for _, c := range cases {
		_, err := x.ExploreScript(t.Context(), loadScript(t, c[0]), trace.Bounds{Preemptions: -1})
		if err == nil || !strings.HasPrefix(err.Error(), c[1]) {
			t.Errorf("%q: %v, want %q", c[0], err, c[1])
		}
	}
}

var mistakes = [][2]string{
	{"def buy():\n    sql('SELEC 1')", "shop.star:2:8: in buy: Error 1064"},
	{"def buy():\n  x = 1\n  sql('SELECT stock FROM no_such_table')", "shop.star:3:6: in buy: Error 1146"},
	{"def buy():\n    try_sql('SELECT no_such_column FROM good_stock')", "shop.star:2:12: in buy: Error 1054"},
	{"def buy():\n    sql('SELECT ?', [1])", "shop.star:2:8: in buy: sql: [1] (list) cannot be sent"},
	{"def buy():\n    sql('SELECT 1', 1)", "shop.star:2:8: in buy: "},
	{"def buy():\n    sql()", "shop.star:2:8: in buy: sql: a text is missing"},
	{"def buy():\n    sql('SELECT 1', to='x')", "shop.star:2:8: in buy: sql: unexpected keyword argument \"to\""},
	{"def buy():\n    redis('SETT', 'a', 1)", "shop.star:2:10: in buy: ERR unknown command"},
	{"def buy():\n    lua('return nonsense.x')", "shop.star:2:8: in buy: ERR"},
	{"def buy():\n    return 1 + 'a'", "shop.star:2:14: in buy: unknown binary op: int + string"},
	{"def buy():\n    return [1]", "shop.star: buy returns a list"},
	{"def f(n):\n    return 1 // n\ndef buy():\n    f(0)", "shop.star:2:14: in f: "},
	{"def setup():\n    sql('nonsense')\ndef buy(): pass", "shop.star:2:8: in setup: Error 1064"},
	{"def setup():\n    refuse('no')\ndef buy(): pass", "shop.star: setup was refused: no"},
	{"def check():\n    x = [][0]\ndef buy(): pass", "shop.star:2:11: in check: "},
	{"def buy():\n    while True:\n        pass", "shop.star:1:1: in buy: Starlark computation cancelled: it loops"},
	{"def buy():\n    while True:\n        redis('INCR', 'n')", "shop.star:3:14: in buy: it loops: 200 calls"},
	{"def buy():\n    refuse('I do not want to')", "shop.star: no session has succeeded in any of 1 schedules: busy: I"},
	{"def buy():\n    while True:\n        redis('PING')", "shop.star:3:14: in buy: it loops: 1000 calls with"},
	{"def buy():\n    sql('SELECT ?', 'x' * 70000)", "shop.star:2:8: in buy: sql: it sends or returns more than 65536"},
	{"def buy():\n    sql(\"SELECT REPEAT('x', 70000)\")", "shop.star:2:8: in buy: it sends or returns more than 65536"},
	{"def buy():\n    l = [0]\n    for _ in range(28):\n        l += l", "shop.star:1:1: it needs more than 64 MiB"},
	{"def setup():\n    while True:\n        redis('GET', 'a')\ndef buy(): pass", "shop.star:3:14: in setup: it loops"},
}

// What a script does not expect is a claim that did not hold.
func testVerdicts(t *testing.T, x *Explorer) {
	const racy = "def buy(count):\n    left = sql('SELECT stock FROM good_stock WHERE goods_id = ?', item)\n" +
		"    sql('UPDATE good_stock SET stock = ? WHERE goods_id = ?', left - count, item)\n"
	const safe = "def buy(count):\n    sql('UPDATE good_stock SET stock = stock - ? WHERE goods_id = ?', count, item)\n"
	for _, c := range []struct {
		text  string
		holds bool
	}{
		{racy, false}, {safe, true}, {"expect = 'right'\n" + racy, false}, {"expect = 'lost update'\n" + safe, false},
		{"faults = ['lease-ends']\nexpect = {'lease-ends': 'lost update'}\n" + safe, false}, // it never strikes
		{"faults = ['lost-reply']\nexpect = {'lost-reply': 'lost update'}\n" + safe, false},
		{"expect = 'stuck'\ndef buy(who):\n    while redis('SETNX', 'lock', who) == 0: pass\n", true},
		// An UPDATE without a COMMIT is rolled back, though the buyer was told that it is done.
		{"expect = 'lost update'\n" + strings.Replace(safe, "sql(", "sql('BEGIN')\n    sql(", 1), true},
		{"def check(): return False\n" + safe, false},
		{"stock = 5\ndef check(sold, unknown, refused): return sold == 3 and unknown == 0 and refused == 0\n" + safe, true},
		{"def restock(count):\n    sql('UPDATE good_stock SET stock = stock + ? WHERE goods_id = ?', count, item)\n" + safe +
			"sessions = [buy, restock]\n", true},
	} {
		r, err := x.ExploreScript(t.Context(), loadScript(t, c.text), trace.Bounds{Preemptions: -1, Faults: 1})
		if err != nil || r.Held() != c.holds {
			t.Errorf("%q: held %v, %v", c.text, r.Held(), err)
		}
	}
}

// What a statement does not show is found nevertheless: a write in a stored function, and a view. The full search finds
// the same outcomes.
func testHidden(t *testing.T, x *Explorer) {
	for _, c := range []struct{ create, drop, write string }{
		{
			`CREATE FUNCTION put(item BIGINT, units BIGINT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN
				UPDATE good_stock SET stock = units WHERE goods_id = item; RETURN 1; END`, "DROP FUNCTION put",
			"SELECT put(?, ?)', item, left - count",
		},
		{
			"CREATE VIEW shelf AS SELECT goods_id, stock FROM good_stock", "DROP VIEW shelf",
			"UPDATE shelf SET stock = ? WHERE goods_id = ?', left - count, item",
		},
	} {
		everywhere := func(statement string) {
			for _, l := range x.lanes {
				if _, err := l.db.ExecContext(t.Context(), statement); err != nil {
					t.Error(err)
				}
			}
		}
		everywhere(c.create)
		text := "def buy(count):\n    left = sql('SELECT stock FROM good_stock WHERE goods_id = ?', item)\n    sql('" +
			c.write + ")\n"
		for _, full := range []bool{false, true} {
			r, err := x.ExploreScript(t.Context(), loadScript(t, text), trace.Bounds{Preemptions: -1, NoReduction: full})
			kinds := r.Cells[0].Kinds
			if err != nil || kinds[trace.LostUpdate] != 4 || kinds[trace.Right]+kinds[trace.Unjudged] != 2 {
				t.Errorf("%q, without reduction %v: %+v, %v", text, full, r.Cells, err)
			}
		}
		everywhere(c.drop)
	}
}

// Arguments reach the server as they are, and so do its values.
func testValues(t *testing.T, x *Explorer, cases [][2]string) {
	for _, c := range cases {
		text := "def setup():\n    sql('CREATE TABLE t (n INT)')\ndef buy():\n    got = " + c[0] +
			"\n    if got != " + c[1] + ":\n        fail(repr(got))\ndef check(): return True"
		if _, err := x.ExploreScript(t.Context(), loadScript(t, text), trace.Bounds{Preemptions: -1}); err != nil {
			t.Errorf("%s: %v, want %s", c[0], err, c[1])
		}
	}
}

// A statement that returns rows is recognized however it is written.
var values = [][2]string{
	{"sql('SELECT 41')", "41"}, {"sql('/* a comment */ (SELECT 41)')", "41"},
	{`sql("\n-- a comment\n--\n# another\nselect 41")`, "41"},
	{`sql("INSERT INTO t (n) VALUES (41)\nRETURNING n")`, "41"},
}

// atOnce is a script with a message to the server that may be executed in several steps.
type atOnce struct {
	setup string
	drop  string // what is left of it afterwards
	buy   string // the statement, and its arguments
	head  string // of the script
	kinds map[string]int
	why   string
}

const takesInParts = `BEGIN
	DECLARE have INT;
	SELECT stock INTO have FROM good_stock WHERE goods_id = product;
	UPDATE good_stock SET stock = have - wanted WHERE goods_id = product;
`

const sums = "INSERT INTO sales SELECT ? WHERE (SELECT COALESCE(SUM(units), 0) FROM sales) < 2"

var notOneStep = map[string]atOnce{
	"procedure": {
		setup: "CREATE PROCEDURE take(wanted INT, product BIGINT) " + takesInParts + "END",
		drop:  "DROP PROCEDURE IF EXISTS take",
		buy:   "'CALL take(?, ?)', count, item", kinds: map[string]int{trace.Unjudged: 2}, why: "CALL take(1, 1) is not",
	},
	"function": {
		setup: "CREATE FUNCTION takes(wanted INT, product BIGINT) RETURNS INT " + takesInParts + "RETURN 1; END",
		drop:  "DROP FUNCTION IF EXISTS takes",
		buy:   "'SELECT takes(?, ?)', count, item", kinds: map[string]int{trace.Unjudged: 2}, why: "the function takes",
	},
	"trigger": {
		setup: "CREATE TRIGGER checks BEFORE INSERT ON sales FOR EACH ROW SET NEW.units = (SELECT COUNT(*) FROM good_stock)",
		buy:   "'INSERT INTO sales VALUES (?)', count", kinds: map[string]int{trace.Unjudged: 2}, why: "a trigger of sales",
	},
	"view": {
		setup: "CREATE FUNCTION IF NOT EXISTS counted() RETURNS INT RETURN 1; " +
			"CREATE VIEW few AS SELECT units FROM sales WHERE units < counted(); " +
			"CREATE VIEW fewer AS SELECT units FROM few WHERE units < 1",
		drop: "DROP VIEW IF EXISTS few, fewer", buy: "'SELECT units FROM fewer'",
		kinds: map[string]int{trace.Unjudged: 2}, why: "the view fewer",
	},
	"view that calls nothing": {
		setup: "CREATE VIEW others AS SELECT units FROM sales WHERE units < 1",
		drop:  "DROP VIEW IF EXISTS others", buy: "'SELECT units FROM others'", kinds: map[string]int{trace.Right: 2},
	},
	"reads without a lock": {
		buy: "'" + sums + "', count", head: "isolation = 'READ COMMITTED'", kinds: map[string]int{trace.Unjudged: 2},
		why: "does not lock",
	},
	"reads with locks": {buy: "'" + sums + "', count", kinds: map[string]int{trace.Right: 2}},
	"prepared by its name": {
		buy:   "'PREPARE deduct FROM \"UPDATE good_stock SET stock = stock - 1\"')\n    sql('EXECUTE deduct'",
		kinds: map[string]int{trace.Unjudged: 2}, why: "does not say",
	},
	"damage that is found": {
		setup: "CREATE PROCEDURE take(wanted INT, product BIGINT) " + takesInParts + "END",
		drop:  "DROP PROCEDURE IF EXISTS take",
		buy:   "'CALL take(?, ?)', 2 * count, item", head: "def check(): return 'damage'",
		kinds: map[string]int{"damage": 2},
	},
}

// What is not one step on the server is never right, and the verdict says why.
func testNotOneStep(t *testing.T, x *Explorer, cases map[string]atOnce) {
	for name, c := range cases {
		text := c.head + "\n"
		if !strings.Contains(text, "check") {
			text += "def check(): return True\n"
		}
		text += "def setup():\n    sql('CREATE TABLE sales (units BIGINT)')\n"
		if c.setup != "" {
			text += fmt.Sprintf("    sql(%q)\n", c.setup)
		}
		text += "def buy(count):\n    sql(" + c.buy + ")\n"
		drop := func() {
			for _, l := range x.lanes {
				if c.drop != "" {
					execute(t, l.db, c.drop)
				}
			}
		}
		r, err := x.ExploreScript(t.Context(), loadScript(t, text), trace.Bounds{Preemptions: -1})
		must.Succeed(t, err)
		drop()
		if !reflect.DeepEqual(r.Cells[0].Kinds, c.kinds) {
			t.Errorf("%s: %v, want %v", name, r.Cells[0].Kinds, c.kinds)
		}
		var verdict strings.Builder
		must.Succeed(t, r.Write(&verdict, false, false))
		if unjudged := c.kinds[trace.Unjudged] > 0; r.Judged() == unjudged || !strings.Contains(verdict.String(), c.why) {
			t.Errorf("%s: judged %v:\n%s", name, r.Judged(), verdict.String())
		}
		for kind, shortest := range r.Cells[0].Shortest { // a replay knows it, too
			if o, err := x.ReplayScript(t.Context(), loadScript(t, text), shortest.Token); err != nil || o.Kind != kind {
				t.Errorf("%s: the replay is %s: %v", name, o.Kind, err)
			}
			drop()
		}
	}
}
