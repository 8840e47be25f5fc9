package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

func TestWhatStatementsTouch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, reads, writes string }{
		{"SELECT stock FROM good_stock WHERE goods_id = 5", "good_stock", ""},
		{"select a from `Good_Stock` as g, shop.other o JOIN (SELECT x FROM third) d USING (id), fourth WHERE a IN (1, b)",
			"d fourth g good_stock id o other third", ""},
		{"SELECT * FROM a WHERE x = 'FROM b' /* FROM c */ -- FROM d\nORDER BY y, z LIMIT 1, 2", "a", ""},
		{"SELECT a FROM t FOR UPDATE", "", "t"},
		{"SELECT a FROM t WHERE b = 1 FOR UPDATE NOWAIT", "", "t"},
		{"SELECT a FROM t LOCK IN SHARE MODE", "", "t"},
		{"(SELECT a FROM t) UNION SELECT b FROM u", "t u", ""},
		{"WITH c AS (SELECT 1 FROM t) SELECT * FROM c", "c t", ""},
		{"INSERT INTO t (a, b) VALUES (1, 2), (3, 4) ON DUPLICATE KEY UPDATE a = VALUES(a), b = 2 RETURNING a, b", "", "t"},
		{"INSERT IGNORE t SET a = 1, b = 2", "", "t"},
		{"REPLACE INTO t SELECT a, b FROM u", "", "t u"},
		{"UPDATE LOW_PRIORITY t, u SET t.a = u.a, t.b = 1 WHERE t.c = u.c", "", "t u"},
		{"UPDATE t SET a = (SELECT MAX(a) FROM u)", "", "t u"},
		{"DELETE t FROM t WHERE a = 1", "", "t"},
		{"DELETE FROM t USING t JOIN u USING (id)", "", "id t u"},
		{"SELECT GET_LOCK('x y', 3)", "", "lock:x y"},
		{"DO RELEASE_LOCK('it''s')", "", "lock:it's"},
		{"SELECT GET_LOCK(CONCAT('a', 'b'), 3)", "", "*"},
		{"SELECT RELEASE_ALL_LOCKS()", "", "*"},
		{"TRUNCATE t", "*", "*"}, {"CALL p()", "*", "*"}, {"SET GLOBAL x = 1", "*", "*"},
		{"XA START 'x'", "*", "*"}, {"DROP TABLE t", "*", "*"}, {"SELECT 1; KILL 5", "*", "*"},
		{"UPDATE t SET a = 1; SELECT b FROM u", "u", "t"},
		{"SELECT 1 FROM 2024_stock, shop.2025é, 2026_shop.`3`", "2024_stock 2025é 3", ""},
		{"INSERT INTO shop.t (a, b) SELECT MAX(x), NOW(6) FROM u WHERE v IN (1, 2)", "", "t u"},
		{"INSERT t TABLE u", "", "t u"},
		{"SELECT stock INTO @left FROM t", "t", ""}, {"SET @left = (SELECT stock FROM t)", "t", ""},
		{"SET @got = GET_LOCK('Shop', 1)", "", "lock:shop"},
	} {
		s := sqlState{autocommit: true}
		e := s.analyse(tokenize(c.text))
		wantNames(t, c.text+": reads", e.reads, prefixAll(c.reads)...)
		wantNames(t, c.text+": writes", e.writes, prefixAll(c.writes)...)
		if e.local {
			t.Errorf("%s is taken for local", c.text)
		}
	}
	for _, text := range statementsThatMayDoAnything {
		s := sqlState{autocommit: true, inTrans: true}
		for _, text := range []string{text, "COMMIT"} {
			e := s.analyse(tokenize(text))
			wantNames(t, text+": reads", e.reads, everything)
			wantNames(t, text+": writes", e.writes, everything)
			if e.local {
				t.Errorf("%s is taken for local", text)
			}
		}
	}
	for _, text := range []string{
		"BEGIN", "START TRANSACTION READ ONLY", "SET autocommit = 0", "SET NAMES utf8mb4", "SELECT 1",
		"SELECT @@x, VERSION()", "SELECT 1 + ABS(2), `a`, 'b'", "WITH c AS (SELECT 1) SELECT 2",
		"SELECT 1 FROM DUAL", "DO 1", "USE x", "SHOW WARNINGS", "", ";", "-- nothing", "COMMIT", "ROLLBACK", "SAVEPOINT s",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "PREPARE p FROM 'DELETE FROM t'", "SET @x = 1, @y := 'a'",
	} {
		s := sqlState{autocommit: true}
		if e := s.analyse(tokenize(text)); !e.local || len(e.reads)+len(e.writes) > 0 {
			t.Errorf("%s: %+v, want local", text, e)
		}
	}
}

// statementsThatMayDoAnything hide what they touch. So does the end of their transaction.
var statementsThatMayDoAnything = []string{
	"SET STATEMENT max_statement_time=1 FOR SELECT 1", "WITH c AS (SELECT 1) UPDATE t SET a = 1",
	"WITH c AS (SELECT 1) DELETE FROM t", "SELECT * FROM information_schema.innodb_trx", "SHOW STATUS", "DESC t",
	"EXPLAIN SELECT a FROM t", "SELECT NEXTVAL(s)",
	"SELECT put(1, 2)", "SELECT `put`(1)", `SELECT "put"(1)`, "SELECT shop.put (1)", "SELECT shop.abs(1)", "DO put(1)",
	"SET @x = put(1)", "SELECT 1 FROM t WHERE a IN (1, put(2))", "SELECT 1 FROM t JOIN u ON put(t.a), v",
	"INSERT INTO t (a, b) VALUES (1, put(2))", "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1, b = put(2)",
	"UPDATE t SET a = put(1)", "DELETE FROM t RETURNING a, put(1)", "WITH c AS (SELECT put(1)) SELECT 2",
	"INSERT INTO t VALUES (NEXT VALUE FOR s)", "INSERT INTO t SELECT 1 FROM information_schema.tables",
	"CALL put(1)", "CALL put", "EXECUTE p", "EXECUTE IMMEDIATE 'DELETE FROM t'", "BEGIN NOT ATOMIC DELETE FROM t; END",
	"HANDLER t READ FIRST", "LOAD DATA INFILE 'x' INTO TABLE t", "SELECT LOAD_FILE('x')", "SELECT 1 INTO OUTFILE 'x'",
	"RENAME TABLE t TO u", "TRUNCATE t", "LOCK TABLES t WRITE", "EXPLAIN ANALYZE UPDATE t SET a = 1",
	"ANALYZE DELETE FROM t", "SET @x = 1, GLOBAL y = 2",
	"SELECT a FROM { OJ t LEFT JOIN u ON t.a = u.a }",
}

// prefixAll returns names as an Exchange has them.
func prefixAll(list string) (all []string) {
	for name := range strings.SplitSeq(list, " ") {
		switch {
		case name == "":
		case strings.HasPrefix(list, "lock:"):
			return []string{"mysql:" + list}
		case name == everything:
			all = append(all, name)
		default:
			all = append(all, "mysql:"+name)
		}
	}
	slices.Sort(all)
	return all
}

func TestOnlyItsOwnQuotationMarkIsDoubledInALiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"'a``b'": "a``b", `'a""b'`: `a""b`, `'a''b'`: `a'b`, "`a``b`": "a`b", "`a''b`": "a''b", `"a""b"`: `a"b`,
		`'a\'b'`: `a'b`, `'a\\''b'`: `a\'b`, `'\0\x\%'`: "\x00x\\%", "`a\\n`": `a\n`, `'a`: "a",
	} {
		if tokens := tokenize(text); len(tokens) != 1 || tokens[0].text != want {
			t.Errorf("%s says %+v, want %q", text, tokens, want)
		}
	}
}

func TestTransactionsGatherWhatTheyTouch(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openSQL(t, func(*mysql.Config) {})
	items(t, direct)
	exec(t, direct, "CREATE TABLE other (id INT PRIMARY KEY)")
	for _, c := range []struct{ text, reads, writes string }{
		{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "", ""},
		{"BEGIN", "", ""},
		{"SELECT stock FROM item", "item", ""},
		{"SELECT GET_LOCK('x', 1)", "", "lock:x"},
		{"UPDATE other SET id = 2", "", "other"},
		{"COMMIT", "item", "other"},
		{"SELECT RELEASE_LOCK('x')", "", "lock:x"},
		{"COMMIT", "", ""},
		{"BEGIN", "", ""},
		{"SELECT stock FROM item WHERE id = 1 /* the snapshot */", "* item", ""},
		{"SELECT stock FROM item WHERE id = 2", "item", ""},
		{"ROLLBACK", "item", ""},
		{"SET autocommit = 0", "", ""},
		{"DELETE FROM item WHERE id = 7", "", "item"},
		{"SET autocommit = 1", "", "item"},
		{"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "", ""},
		{"SELECT 1 FROM item /* commits by itself */", "item", ""},
		{"START TRANSACTION", "", ""},
		{"SELECT id FROM item", "", "item"},
		{"BEGIN /* commits */", "", "item"},
		{"ROLLBACK", "", ""},
		{"START TRANSACTION WITH CONSISTENT SNAPSHOT", "*", ""},
	} {
		exec(t, through, c.text)
		e := g.find(t, c.text)
		wantNames(t, c.text+": reads", e.Reads, prefixAll(c.reads)...)
		wantNames(t, c.text+": writes", e.Writes, prefixAll(c.writes)...)
		if ends := c.text == "COMMIT" || c.text == "ROLLBACK"; ends && e.Local != (c.writes == "") {
			t.Errorf("%s: local is %v", c.text, e.Local)
		}
	}
}

func TestShapes(t *testing.T) {
	t.Parallel()
	e := Exchange{Text: "UPDATE a SET b = b - 5.0e, c = 0xFF WHERE d = 'it\\'s 5' AND e = \"x\" OR f = K7QX"}
	const want = "UPDATE a SET b = b - ?, c = ? WHERE d = ? AND e = ? OR f = ?"
	if got := e.Shape(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhatCommandsTouch(t *testing.T) {
	t.Parallel()
	server := commands(t)
	for command, want := range map[string]string{
		"GET a": "reads a", "set a 1 NX": "writes a", "DEL a b": "writes a b", "MSET a 1 b 2": "writes a b",
		"BLPOP a b 0": "writes a b", "ZUNIONSTORE d 2 a b WEIGHTS 1 2": "reads a b writes d",
		"XREAD BLOCK 5 STREAMS a b 0 0":    "reads a b",
		"XREADGROUP GROUP g c STREAMS a >": "writes a", "EXISTS a b": "reads a b", "XGROUP CREATE a g 0": "writes a",
		"EVAL_RO x 2 a b c": "reads a b", "WHATEVER a": "reads * writes *", "CONFIG SET x y": "reads * writes *",
		"KEYS x": "reads *", "PUBLISH a m": "writes channel:*", "WAIT 1 0": "", "EVAL x 99 a": "",
		"EVAL x 1 a b": "writes a", "EVAL x 0": "", "BLPOP": "reads * writes *", "FLUSHALL": "reads * writes *",
		"SORT a GET b*": "reads * writes *",
	} {
		s := redisSession{server: server}
		e := s.exchange([][]string{strings.Fields(command)})
		got := strings.Join(append(prefixedBy("reads", e.Reads), prefixedBy("writes", e.Writes)...), " ")
		if got = strings.ReplaceAll(got, keyPrefix, ""); got != want || e.Local {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
	for _, command := range []string{
		"HELLO 3 AUTH a b", "CLIENT SETNAME x", "SELECT 1", "PING", "SCRIPT LOAD x", "UNWATCH",
	} {
		s := redisSession{server: server}
		e := s.exchange([][]string{strings.Fields(command)})
		if !e.Local || len(e.Reads)+len(e.Writes) > 0 {
			t.Errorf("%s: %+v", command, e)
		}
	}
}

func prefixedBy(what string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return append([]string{what}, names...)
}
