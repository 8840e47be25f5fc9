package service_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/service"
)

const usual = `
url: http://localhost:1/
request: {path: '/items/{item}', body: '{"n": {count}}'}
stock: {sql: {set: 'SET {item} {count}', read: 'GET {item}'}}
`

func read(t *testing.T, text string) (*service.Description, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "my.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return service.Read(path, func(name string) string { return map[string]string{"TOKEN": "secret"}[name] })
}

func mustRead(t *testing.T, text string) *service.Description {
	t.Helper()
	d, err := read(t, text)
	must.Succeed(t, err)
	return d
}

func TestAWrongFileIsOneClearError(t *testing.T) {
	t.Parallel()
	replaced := func(old, with string) string { return strings.Replace(usual, old, with, 1) }
	for text, want := range map[string]string{
		"":                             "the file is empty",
		"- a":                          "line 1: a value of type seq cannot stand here",
		"foo: [":                       "line 1: did not find expected node content",
		"\x00\xff":                     "yaml: ",
		usual + "stok: 1\n":            "line 5: unknown field stok",
		usual + "url: http://a\n":      `line 5: mapping key "url" already defined at line 2`,
		usual + "sold: {status: 99}\n": `sold.status: ["99"] must be a status`,
		usual + "sold: {field: a}\n":   "sold: field and value need each other",
		usual + "command: a\n":         "give either command",
		usual + "setup: a.sql\n":       "setup: open",
		usual + "migrate: make\n":      "setup and migrate are for a service with a command",
		usual + "pause: 2s\n":          "pause: 2s must be at most a second",
		replaced("path:", `headers: {a: "b\nc"}, path:`):         `header "a": neither its name nor its value`,
		replaced("path:", "headers: {content-length: 1}, path:"): "header content-length: the lab sets it",
		usual + "database: oracle\n":                             `database: "oracle" must be mysql or postgres`,
		usual + "database: postgres\n":                           "with url the address of your server",
		usual + "pause: soon\n":                                  "line 5: a value of type str `soon` cannot stand here",
		usual + "name: a/b\n":                                    `name: "a/b" is part of the names of files`,
		usual + "command: sh -c 'a b'\n":                         "line 5: words with quotes must be a list",
		replaced("http://", ""):                                  "must be one or more URLs",
		replaced("/items", "items"):                              "request.path",
		replaced("s/{item}", "s"):                                "request: neither path, body nor headers have {item}",
		usual + "cancel: {path: /c}\n":                           "cancel: needs idempotency_header",
		usual + "idempotency_header: K\ncancel: {path: /c}\n":    "cancel: neither path, body nor headers have {key}",
		usual + "restock: {path: '/r/{item}'}\n":                 "restock: neither path, body nor headers have {count}",
		usual + "restock: {body: a}\n":                           "restock.path is missing",
		replaced("GET {item}", "GET"):                            "stock.sql.read",
		replaced("{item} {count}", ""):                           "stock.sql.set",
		replaced("GET {item}", "GET {item} {key}"):               "stock.sql: only {item} and {count}",
		replaced("sql", "http"):                                  "stock.http.field",
		replaced("'GET {item}'}", "'GET {item}'}, redis: {}"):    "stock: give one of sql, redis and http",
		replaced("body:", "headers: {A: '${NONE}'}, body:"):      "header A: the environment has no ${NONE}",
	} {
		_, err := read(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "my.yaml: ") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error is %v, want the file and %q in one line", text, err, want)
		}
	}
}

func TestTheRequestIsFilledIn(t *testing.T) {
	t.Parallel()
	d := mustRead(t, strings.Replace(usual, "body:", "method: PUT, headers: {Authorization: '${TOKEN} {key}'}, body:", 1)+
		"idempotency_header: Key\n")
	op := history.Op{GoodsID: 7, Count: 2}
	text := string(d.AppendRequest(nil, "host", "/base", "name", &op))
	want := "PUT /base/items/7 HTTP/1.1\r\nHost: host\r\nContent-Length: 8\r\nContent-Type: application/json\r\n" +
		"Authorization: secret name\r\nKey: name\r\n\r\n" + `{"n": 2}`
	if text != want {
		t.Errorf("the request is\n%q, want\n%q", text, want)
	}
	if d.URL[0] != "http://localhost:1" || d.Name != "my" || d.OneUnit() {
		t.Errorf("URL %q, name %q, one unit %v", d.URL[0], d.Name, d.OneUnit())
	}
}

func TestEachSaleHasABuyerOfItsOwn(t *testing.T) {
	t.Parallel()
	d := mustRead(t, strings.Replace(usual, `{"n": {count}}`, `{buyer}`, 1))
	var bodies []string
	for _, name := range []string{"a-1", "a-2", "a-1"} {
		_, body, _ := strings.Cut(string(d.AppendRequest(nil, "", "", name, &history.Op{})), "\r\n\r\n")
		bodies = append(bodies, body)
	}
	if bodies[0] == bodies[1] || bodies[0] != bodies[2] || strings.Trim(bodies[0], "0123456789") != "" || !d.OneUnit() {
		t.Errorf("the buyers are %q, want two numbers, and the first one again", bodies)
	}
}

func TestAnswersMeanWhatTheFileSays(t *testing.T) {
	t.Parallel()
	const inBody = usual + "sold: {field: code, value: 0}\nsold_out: {status: [200, 410], field: code, value: 1}\n" +
		"refused: {status: 200}\nremaining: data.0.left\n"
	for _, test := range []struct {
		text   string
		status int
		body   string
		want   history.Outcome
	}{
		{usual, 201, "", history.Sold},
		{usual, 409, "", history.SoldOut},
		{usual, 429, "", history.Busy},
		{usual, 503, "", history.Busy},
		{usual, 500, "", history.Unknown},
		{usual, 302, "", history.Unknown},
		{inBody, 200, `{"code": 0, "data": [{"left": 3}]}`, history.Sold},
		{inBody, 200, `{"code": 1}`, history.SoldOut},
		{inBody, 410, `{"code": "1"}`, history.SoldOut},
		{inBody, 200, `{"code": 2}`, history.Busy},
		{inBody, 201, `{"code": 2}`, history.Unknown},
		{inBody, 200, `<html>`, history.Busy},
		{usual + "sold_out: {field: reason, value: gone}\n", 200, `{"reason": "gone"}`, history.SoldOut},
		{usual + "sold_out: {field: reason, value: gone}\n", 200, `{}`, history.Sold},
		{inBody, 201, `<html>`, history.Unknown},
	} {
		var op history.Op
		mustRead(t, test.text).ReadAnswer(&op, test.status, []byte(test.body))
		told := strings.Contains(test.body, "left")
		answered := test.want == history.Sold || test.want == history.SoldOut
		if op.Outcome != test.want || op.OmitsRemaining != (!told && answered) || told && op.Remaining != 3 {
			t.Errorf("%d %s: %+v, want %s", test.status, test.body, op, test.want)
		}
		if unclear := op.Outcome == history.Unknown && test.body != ""; unclear && !strings.Contains(op.Error, test.body) {
			t.Errorf("%d %s: the error %q lacks the body", test.status, test.body, op.Error)
		}
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	all := mustRead(t, usual+"remaining: left\nidempotency_header: Key\n").NotJudged(2)
	if len(all) != 0 {
		t.Errorf("of a complete description: %q, want nothing", all)
	}
	http := strings.NewReplacer("sql", "http", "SET ", "PUT /", "'GET {item}'", "'GET /{item}', field: a").Replace(usual)
	notes := mustRead(t, strings.Replace(http, "{count}", "1", 1)).NotJudged(1)
	for _, want := range []string{
		"remaining is not in the reply", "there is no idempotency_header", "the request has no {count}",
		"replicas are not told apart", "it is read from the service itself",
	} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasSuffix(n, want) }) {
			t.Errorf("%q lacks %q", notes, want)
		}
	}
}

func TestShopsOfTheTrackRecordCanBeExplored(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../record/*/shop.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no shop is described", err)
	}
	for _, file := range files {
		d, err := service.Read(file, os.Getenv)
		if err != nil || len(d.Migrate) == 0 || d.OneUnit() {
			t.Errorf("%s: %v, %+v", file, err, d)
		}
	}
}
