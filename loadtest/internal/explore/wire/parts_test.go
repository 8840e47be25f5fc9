package wire

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestStatementsThatAreNotOneStep(t *testing.T) {
	const committed = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
	for text, want := range map[string]string{
		"CALL take(1)":        "procedure",
		"EXECUTE have":        "does not say",
		"BEGIN NOT ATOMIC":    "block",
		"IF 1 THEN":           "block",
		"BEGIN":               "",
		"SELECT stock FROM a": "",
		"DO SLEEP(1)":         "",
		"INSERT INTO a SELECT id FROM b WHERE n > 1":                                             "",
		"INSERT INTO a SELECT id FROM b FOR UPDATE":                                              "",
		"INSERT INTO a SELECT id FROM b LIMIT 1 FOR UPDATE SKIP LOCKED":                          "reads",
		"SELECT id FROM b FOR UPDATE SKIP LOCKED":                                                "",
		committed + "INSERT INTO a SELECT id FROM b":                                             "reads",
		committed + "INSERT INTO a SELECT 1, 2":                                                  "",
		committed + "INSERT INTO a SELECT 1 FROM DUAL":                                           "",
		committed + "INSERT INTO a (id) VALUES (1)":                                              "",
		committed + "REPLACE INTO a (SELECT id FROM b)":                                          "reads",
		committed + "INSERT INTO a SELECT id FROM b FOR UPDATE":                                  "reads",
		committed + "UPDATE a SET n = (SELECT MAX(n) FROM b)":                                    "reads",
		committed + "UPDATE a SET n = n - 1 WHERE id = 1":                                        "",
		committed + "UPDATE a, b SET a.n = b.n":                                                  "reads",
		committed + "UPDATE a JOIN b USING (id) SET a.n = b.n":                                   "reads",
		committed + "UPDATE a SET n = 1, m = 2":                                                  "",
		committed + "DELETE FROM a WHERE id IN (SELECT id FROM b)":                               "reads",
		committed + "DELETE a FROM a FORCE INDEX (PRIMARY) WHERE id = 1":                         "",
		committed + "DELETE a FROM a JOIN b USING (id)":                                          "reads",
		committed + "DELETE FROM a WHERE id IN (1, 2)":                                           "",
		committed + "SELECT n, (SELECT MAX(n) FROM b) FROM a FOR UPDATE":                         "",
		committed + "INSERT INTO a VALUES (1) ON DUPLICATE KEY UPDATE n = VALUES(n)":             "",
		committed + "INSERT INTO a VALUES (REPLACE('x', 'y', 'z'), INSERT('a', 1, 1, 'FROM b'))": "",
		"SET SESSION tx_isolation = 'READ-UNCOMMITTED'; UPDATE a SET n = (SELECT 1 FROM b)":      "reads",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; INSERT INTO a SELECT 1 FROM b":   "reads",
	} {
		s := sqlState{autocommit: true}
		if got := s.analyse(tokenize(text)).parts; (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"CALL take(1)":             "procedure",
		"DO $$ BEGIN END $$":       "block",
		"DO LANGUAGE plpgsql $$$$": "block",
		"EXECUTE have(1)":          "does not say",
		"INSERT INTO a SELECT n FROM b WHERE (SELECT SUM(n) FROM b) < 2":                                  "reads",
		"INSERT INTO a SELECT * FROM unnest(ARRAY[1, 2]) AS n":                                            "",
		"INSERT INTO a SELECT EXTRACT(EPOCH FROM now())":                                                  "",
		"UPDATE a SET n = b.n FROM b WHERE a.id = b.id":                                                   "reads",
		"UPDATE a SET n = v.n FROM (VALUES (1, 2)) AS v (id, n) WHERE v.id = a.id":                        "",
		"UPDATE a SET n = 1 WHERE n IS DISTINCT FROM m RETURNING n":                                       "",
		"DELETE FROM a USING b WHERE a.id = b.id":                                                         "reads",
		"MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN UPDATE SET n = 1":                          "reads",
		"UPDATE a SET n = 1 WHERE id = (SELECT id FROM a LIMIT 1 FOR UPDATE SKIP LOCKED)":                 "reads",
		"UPDATE a SET n = 1 WHERE id = (SELECT id FROM a LIMIT 1)":                                        "reads",
		"WITH s AS (UPDATE a SET n = 1 RETURNING n) INSERT INTO b SELECT n FROM s, (VALUES (1)) AS v (x)": "",
		"WITH s AS (UPDATE a SET n = 1 RETURNING n) INSERT INTO b SELECT n FROM s JOIN c USING (n)":       "reads",
		"WITH s (n) AS (SELECT id FROM a FOR UPDATE) UPDATE a SET n = 1 FROM s WHERE s.n = a.id":          "reads",
		"INSERT INTO a SELECT COUNT(*) FROM (SELECT 1 FROM b FOR SHARE) AS s":                             "reads",
		"SELECT id FROM a FOR UPDATE":                                                                     "",
		"WITH s AS (SELECT id FROM a) UPDATE a SET n = 1 FROM s":                                          "reads",
		"SELECT n FROM a WHERE id IN (SELECT id FROM b)":                                                  "",
	} {
		if got, _ := PartsOfPostgres(text); (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("PostgreSQL: %s: %q, want %q", text, got, want)
		}
	}
}

func TestMessagesWithSeveralStatements(t *testing.T) {
	for text, want := range map[string]bool{
		"UPDATE a SET n = 1; UPDATE b SET n = 2": true, "BEGIN; UPDATE a SET n = 1; COMMIT": false, "SELECT 1;": false,
		"BEGIN; SELECT n FROM a; UPDATE a SET n = 1; COMMIT": true, "UPDATE a SET s = ';'": false,
	} {
		s := sqlState{autocommit: true}
		_, inPostgres := PartsOfPostgres(text)
		if got := s.analyse(tokenize(text)).several; got != want || inPostgres != want {
			t.Errorf("%s: %v, and on PostgreSQL %v, want %v", text, got, inPostgres, want)
		}
	}
	_, server, _, _ := openRedis(t, 3)
	for text, want := range map[string]bool{
		"SET a 1\nPING": false, "SET a 1\nSET b 2": true, "MULTI\nSET a 1\nSET b 2\nEXEC": false, "WATCH a\nGET a": true,
	} {
		session := newRedisSession(&Conn{}, server)
		var commands [][]string
		for line := range strings.SplitSeq(text, "\n") {
			commands = append(commands, strings.Fields(line))
		}
		if got := session.exchange(commands).Several; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestNamesOfWhatIsHidden(t *testing.T) {
	known := map[string]string{"claim(": "a function", "orders": "a trigger"}
	for text, want := range map[string]string{
		"SELECT shop.Claim (1)": "a function", "SELECT claim FROM a": "", "SELECT 'claim(1)'": "",
		"INSERT INTO `orders` VALUES (1)": "a trigger", "SET @x = claim(1)": "a function",
	} {
		if got := (&Exchange{Store: "mysql", Text: text}).Names(known); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := (&Exchange{Store: "postgres", Text: `SELECT "claim"($$x$$)`}).Names(known); got != "a function" {
		t.Errorf("on PostgreSQL: %q", got)
	}
}

// Clients of MariaDB send PREPARE and EXECUTE together, before they know the id of the statement.
func TestAStatementIsExecutedBeforeItsIdIsKnown(t *testing.T) {
	packet := func(body ...byte) frame { return frame{raw: append([]byte{byte(len(body)), 0, 0, 0}, body...)} }
	execute := func(id uint32) frame {
		return packet(append(binary.LittleEndian.AppendUint32([]byte{comStmtExecute}, id), 0, 1, 0, 0, 0)...)
	}
	s := newMySQLSession(&Conn{})
	s.phase = idles
	prepare, err := s.request(packet(append([]byte{comStmtPrepare}, "UPDATE a SET n = 1"...)...))
	if err != nil || s.reply(packet(0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), prepare) != final {
		t.Fatalf("the statement is not prepared: %v", err)
	}
	e, err := s.request(execute(math.MaxUint32))
	if err != nil || e.Text != "UPDATE a SET n = 1" || e.Parts != "" {
		t.Errorf("%+v, %v", e, err)
	}
	s.reply(packet(0, 0, 0, 2, 0, 0, 0), e)
	if e, err = s.request(execute(8)); err != nil || e.Text != "EXECUTE 8" || e.Parts == "" {
		t.Errorf("a statement that nobody has prepared is taken for one step: %+v, %v", e, err)
	}
	s.reply(packet(0, 0, 0, 2, 0, 0, 0), e)
	if e, err = s.request(packet(0xfa, 7, 0, 0, 0)); err != nil || e.Parts == "" {
		t.Errorf("a command that is not known is taken for one step: %+v, %v", e, err)
	}
}
