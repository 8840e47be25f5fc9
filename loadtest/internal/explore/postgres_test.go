package explore

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/service"
)

func TestScriptsOnPostgres(t *testing.T) {
	t.Parallel()
	x := startScripts(t, 2, PostgreSQL)
	t.Run("isolation", func(t *testing.T) { testIsolation(t, x) })
	t.Run("mistakes", func(t *testing.T) { testMistakes(t, x, mistakesOnPostgres) })
	t.Run("values", func(t *testing.T) { testValues(t, x, valuesOnPostgres) })
	t.Run("not one step", func(t *testing.T) { testNotOneStep(t, x, notOneStepOnPostgres) })
	t.Run("waits", func(t *testing.T) { testPostgresWaits(t, x) })
	t.Run("deadlocks", func(t *testing.T) { testPostgresDeadlocks(t, x) })
}

// isolation lists what PostgreSQL's own tests of isolation (src/test/isolation) expect, by the name of a test. A
// permutation is a token: A is the first session, and B is the second one. What it leads to is in the form of steps.
var isolation = map[string]map[string]string{
	"read-write-unique": {
		"A.B.A.B.A.B": "A1 B1 A2 B2~ A3 B2!40001 B3",
		"A.A.A.B.B.B": "A1 A2 A3 B1=9 B2!23505 B3",
	},
	"deadlock-simple": {"A.B.A.B.A.B": "A1 B1 A2~ B2!40P01 A2 A3 B3"},
	"nowait": {
		"A.A.B.B": "A1=3 A2 B1=3 B2", "A.B.A.B": "A1=3 B1!55P03 A2 B2", "A.B.B.A": "A1=3 B1!55P03 B2 A2",
		"B.A.A.B": "B1=3 A1!55P03 A2 B2", "B.A.B.A": "B1=3 A1!55P03 B2 A2", "B.B.A.A": "B1=3 B2 A1=3 A2",
	},
	"simple-write-skew": {
		"A.A.B.B": "A1 A2 B1 B2", "A.B.A.B": "A1 B1 A2 B2!40001", "A.B.B.A": "A1 B1 B2 A2!40001",
	},
	"insert-conflict-do-nothing":       {"A.B.A.B.B": "A1 B1~ A2 B1 B2='first' B3"},
	"insert-conflict-do-nothing-abort": {"A.B.A.B.B": "A1 B1~ A2 B1 B2='second' B3"},
	"insert-conflict-do-update":        {"A.B.A.B.B": "A1 B1~ A2 B1 B2=11 B3"},
	"insert-conflict-do-update-abort":  {"A.B.A.B.B": "A1 B1~ A2 B1 B2=10 B3"},
	"fk-contention":                    {"A.A.B": "A1 A2 B1", "A.B.A": "A1 B1 A2", "B.A.A": "B1 A1 A2"},
}

func testIsolation(t *testing.T, x *Explorer) {
	for name, want := range isolation {
		got := allSteps(t, x, name)
		for token, steps := range want {
			if got[token] != steps {
				t.Errorf("%s: %s leads to %q, want %q", name, token, got[token], steps)
			}
		}
	}
}

// allSteps executes all interleavings of a script, and tells what each led to.
func allSteps(t *testing.T, x *Explorer, name string) map[string]string {
	t.Helper()
	s := loadFile(t, "testdata/isolation/"+name+".star")
	if _, err := x.use(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	defer x.leave()
	found := map[string]string{}
	search := &Search{
		Bounds: trace.Bounds{Preemptions: -1, NoReduction: true},
		Found:  func(s trace.Schedule) { found[s.Token] = steps(s.Execution) },
	}
	tally, err := search.Run(t.Context(), x.systems(x.scriptChoice(s), scriptWorkload(s), nil))
	if err != nil || tally.Diverged > 0 || tally.Waiting > 0 {
		t.Fatalf("%s: %+v, %v", name, tally, err)
	}
	return found
}

func loadFile(t *testing.T, file string) *Script {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return loadScript(t, string(text))
}

var errorCode = regexp.MustCompile(`^error (\w+):`)

// steps lists the steps of an outcome: A1 is the first of A. After ~, it waits and goes on later; ! is followed by the
// code of an error, and = by the only row.
func steps(o trace.Execution) string {
	var steps []string
	numbers := map[string]int{}
	for _, step := range o.Steps {
		if step.Kind != trace.Executes && step.Kind != trace.Waits && step.Kind != trace.Resumes {
			continue
		}
		if step.Kind != trace.Resumes {
			numbers[step.Actor]++
		}
		text := fmt.Sprint(step.Actor, numbers[step.Actor])
		if row, ok := strings.CutPrefix(step.Reply, "1 row: "); ok {
			text += "=" + row
		}
		if m := errorCode.FindStringSubmatch(step.Reply); m != nil {
			text += "!" + m[1]
		}
		if step.Kind == trace.Waits {
			text = fmt.Sprint(step.Actor, numbers[step.Actor], "~")
		}
		steps = append(steps, text)
	}
	return strings.Join(steps, " ")
}

var mistakesOnPostgres = [][2]string{
	{"def buy():\n    sql('SELEC 1')", "shop.star:2:8: in buy: error 42601: syntax error"},
	{"def buy():\n  x = 1\n  sql('SELECT stock FROM no_such_table')", "shop.star:3:6: in buy: error 42P01"},
	{"def buy():\n    try_sql('SELECT no_such_column FROM good_stock')", "shop.star:2:12: in buy: error 42703"},
	{"def buy():\n    sql('SELECT $1', [1])", "shop.star:2:8: in buy: sql: [1] (list) cannot be sent"},
	{"def buy():\n    sql('SELECT $2', 1)", "shop.star:2:8: in buy: sql: there is no argument for $2"},
	{"def buy():\n    sql('SELECT ?', 1)", "shop.star:2:8: in buy: sql: argument 1 is not used"},
	{"def setup():\n    sql('nonsense')\ndef buy(): pass", "shop.star:2:8: in setup: error 42601"},
	{
		"def buy():\n    sql('BEGIN')\n    sql('SELECT 1/0')",
		"shop.star: no session has succeeded in any of 2 schedules: busy: error 22012: division by zero",
	},
}

var valuesOnPostgres = [][2]string{
	{"sql('SELECT 41')", "41"},
	{"sql('SELECT 1-$1', -1)", "2"},
	{"sql('SELECT $1', \"it's $1 \\\\ ?\")", "\"it's $1 \\\\ ?\""},
	{"sql('SELECT \\'$1\\', \"$2\" FROM (SELECT $1 AS \"$2\") AS a -- $3', 5)", "('$1', 5)"},
	{"sql('SELECT $$a$1$$, $1::text', None)", "('a$1', None)"},
	{"sql('SELECT $1 AND $2, $3', True, False, 0.5)", "(False, '0.5')"},
	{"sql('SELECT SUM(n), AVG(n) FROM generate_series(1, 2) AS n')", "(3, '1.5000000000000000')"},
	{"sql('SELECT n FROM generate_series(1, 2) AS n')", "[1, 2]"},
	{"sql('SELECT 1 WHERE FALSE')", "None"},
	{"sql('INSERT INTO t VALUES (7) RETURNING n')", "7"},
	{"sql('INSERT INTO t VALUES (8), (9)')", "2"},
	{"try_sql('SELECT 1/0').code", "'22012'"},
	{"try_sql('SELECT 5').code", "0"},
}

// A step waits if PostgreSQL says so, not because it takes long.
func testPostgresWaits(t *testing.T, x *Explorer) {
	for lock, want := range map[string]string{
		" FOR UPDATE": "A1=10 B1~ A2 A3 B1=9 B2 B3",
		" AND pg_advisory_xact_lock(1) IS NOT NULL": "A1=10 B1~ A2 A3 B1=10 B2 B3", // B sees what it saw before it waited
	} {
		text := `
def buy(count):
    sql("BEGIN")
    sql("SELECT stock FROM good_stock WHERE goods_id = $1 AND pg_sleep(0.03) IS NOT NULL` + lock + `", item)
    sql("UPDATE good_stock SET stock = stock - $1 WHERE goods_id = $2", count, item)
    sql("COMMIT")
`
		o, err := x.ReplayScript(t.Context(), loadScript(t, text), "script:A.B.A.A.B.B")
		if got := steps(o); err != nil || got != want {
			t.Errorf("%q: %s, want %s, %v", lock, got, want, err)
		}
	}
	const apart = `
def buy():
    sql("SELECT pg_sleep(0.03)")
    sql("SELECT 1")
`
	o, err := x.ReplayScript(t.Context(), loadScript(t, apart), "script:A.B.B.A")
	if got, want := steps(o), "A1='' B1='' B2=1 A2=1"; err != nil || got != want {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
}

// The server ends a deadlock, and the third session comes neither too early nor too late.
func testPostgresDeadlocks(t *testing.T, x *Explorer) {
	const text = `
requests = 3
def lock(a, b):
    sql("BEGIN")
    sql("SELECT pg_advisory_xact_lock($1)", a)
    sql("SELECT pg_advisory_xact_lock($1)", b)
    sql("COMMIT")
    return 0
def one(): return lock(1, 2)
def two(): return lock(2, 1)
def three():
    sql("SELECT 3")
    return 0
sessions = [one, two, three]
`
	o, err := x.ReplayScript(t.Context(), loadScript(t, text), "script:A.B.A.B.C.A")
	if got, want := steps(o), "A1='' B1='' A2~ B2!40P01 A2='' C1=3 A3"; err != nil || got != want {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
}

// The server of a user needs no administrator, and is left as it was.
func TestScriptsOnTheUsersPostgres(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{Relaxed: true})
	must.Succeed(t, err)
	defer func() { _ = server.Stop(t.Context()) }()
	direct, err := service.OpenPostgres(server.DSN("postgres"), "")
	admin := sqlx.NewDb(direct, "pgx")
	must.Succeed(t, err)
	defer admin.Close()
	execute(t, admin, "CREATE ROLE shop LOGIN CREATEDB PASSWORD 'secret'", "CREATE DATABASE shop OWNER shop",
		"ALTER SYSTEM SET deadlock_timeout = '300ms'", "SELECT pg_reload_conf()")
	before := databases(t, admin)
	x, err := StartScripts(t.Context(), 2, "postgres://shop:secret@"+server.Addr+"/shop?sslmode=disable")
	must.Succeed(t, err)
	for _, name := range []string{"update", "advisory-unlock-before-commit", "transactions-in-opposite-order"} {
		r, err := x.ExploreScript(t.Context(), loadFile(t, "../../scripts/postgres/"+name+".star"), unlimited)
		if err != nil || !r.Held() || !r.Judged() {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		for _, c := range r.Cells {
			if c.Waited > 0 {
				t.Errorf("%s: in %d schedules, nobody could go on until time had passed", name, c.Waited)
			}
		}
	}
	x.Close()
	if after := databases(t, admin); !slices.Equal(after, before) {
		t.Errorf("it has the databases %q, and had %q", after, before)
	}
	if _, err := StartScripts(t.Context(), 1, "postgres://nobody:x@"+server.Addr+"/shop"); err == nil {
		t.Error("an account that the server does not know was accepted")
	}
}

func execute(t *testing.T, db *sqlx.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func databases(t *testing.T, db *sqlx.DB) (names []string) {
	t.Helper()
	must.Succeed(t, db.SelectContext(t.Context(), &names, "SELECT datname FROM pg_database ORDER BY 1"))
	return names
}

const counted = "CREATE FUNCTION counted() RETURNS BIGINT LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$; "

var notOneStepOnPostgres = map[string]atOnce{
	"function": {
		setup: "CREATE FUNCTION claim(wanted BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$ BEGIN " +
			"INSERT INTO sales VALUES (wanted); RETURN TRUE; END $$",
		buy: "'SELECT claim($1)', count", kinds: map[string]int{trace.Unjudged: 2}, why: "the function claim",
	},
	"trigger": {
		setup: "CREATE FUNCTION checks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; " +
			"CREATE TRIGGER checks BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION checks()",
		buy: "'INSERT INTO sales VALUES ($1)', count", kinds: map[string]int{trace.Unjudged: 2}, why: "a trigger of sales",
	},
	"reads without a lock": {
		buy: "'" + strings.ReplaceAll(sums, "?", "$1") + "', count", kinds: map[string]int{trace.Unjudged: 2},
		why: "does not lock",
	},
	"view of a view": {
		setup: counted + "CREATE VIEW numbers AS SELECT counted() AS n; CREATE VIEW more AS SELECT n + 1 AS n FROM numbers",
		buy:   "'SELECT n FROM more'", kinds: map[string]int{trace.Unjudged: 2}, why: "the view more",
	},
	"default": {
		setup: counted + "ALTER TABLE sales ALTER units SET DEFAULT counted()",
		buy:   "'INSERT INTO sales DEFAULT VALUES'", kinds: map[string]int{trace.Unjudged: 2}, why: "a default of sales",
	},
	"constraint": {
		setup: counted + "ALTER TABLE sales ADD CHECK (units < counted())",
		buy:   "'INSERT INTO sales VALUES (0)'", kinds: map[string]int{trace.Unjudged: 2}, why: "a constraint of sales",
	},
	"rule": {
		setup: "CREATE RULE twice AS ON INSERT TO sales DO ALSO DELETE FROM sales",
		buy:   "'INSERT INTO sales VALUES (0)'", kinds: map[string]int{trace.Unjudged: 2}, why: "a rule of sales",
	},
	"built-in function": {
		buy: "'INSERT INTO sales SELECT octet_length($1)', 'x'", kinds: map[string]int{trace.Right: 2},
	},
}
