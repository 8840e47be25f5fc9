package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/service"
)

// Each example is judged as its name says. Package explore has the test that explores all of them.
func TestExamplesAreJudged(t *testing.T) {
	t.Parallel()
	serverstest.EachService(t, func(t *testing.T, language string) {
		var dirs []string
		for _, variant := range []string{"wrong", "right"} {
			file, dir := filepath.Join("examples", language, variant+".yaml"), t.TempDir()
			dirs = append(dirs, dir)
			ran := finish(t, "run", "--quick", "--users", "16", "--requests", "300", "--service", file, "--out", dir)
			store := "mysql"
			if language == "python-postgres" {
				store = "postgres"
			}
			want, found := exitHeld, "sold correctly in every run"
			if variant == "wrong" {
				want, found = exitNotHeld, store+": wrong (item 1: units sold "
			}
			ran.want(t, want, found)
			if language == "python" && variant == "wrong" {
				finish(t, "explore", "--quick", "--lanes", "1", "--service", file).
					want(t, want, language+"-"+variant+" on "+store)
			}
		}
		finish(t, "compare", dirs[0], dirs[1]).want(t, exitUnusable, "nothing in common")
		finish(t, "compare", dirs[0], dirs[0]).want(t, exitHeld)
	})
}

// shop is a service of which a test decides how it sells. It keeps its stock in memory.
type shop struct {
	mu    sync.Mutex
	stock map[string]int64
	asked int
	keys  map[string]string                                 // answers to sales with a key
	sell  func(s *shop, w http.ResponseWriter, item string) // mu is locked
}

func sellOne(s *shop, w http.ResponseWriter, item string) {
	if s.stock[item] < 1 {
		http.Error(w, "nothing left", http.StatusConflict)
		return
	}
	s.stock[item]--
	fmt.Fprintf(w, `{"left": %d}`, s.stock[item])
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		time.Sleep(time.Millisecond) // other requests come meanwhile, as they do while a database works
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	item := r.PathValue("item")
	switch r.Method {
	case http.MethodPost:
		s.asked++
		key := r.Header.Get("Key")
		if s.keys[key] == "" {
			answer := httptest.NewRecorder()
			s.sell(s, answer, item)
			s.keys[key] = fmt.Sprintf("%d %s", answer.Code, answer.Body)
		}
		var status int
		_, _ = fmt.Sscan(s.keys[key], &status)
		w.WriteHeader(status)
		fmt.Fprint(w, s.keys[key][4:])
		delete(s.keys, "") // sales without a key
	case http.MethodPut:
		var body struct{ Units int64 }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.stock[item] = body.Units
	default:
		fmt.Fprintf(w, `{"units": %d}`, s.stock[item])
	}
}

// start starts replicas of the shop, and returns their URLs.
func (s *shop) start(t *testing.T, replicas int) (urls []string) {
	t.Helper()
	s.stock, s.keys = map[string]int64{}, map[string]string{}
	mux := http.NewServeMux()
	mux.Handle("/items/{item}", s)
	for range replicas {
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	return urls
}

// describe writes a description of the shop to a file.
func describe(t *testing.T, urls []string, more string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.yaml")
	text := fmt.Sprintf(`url: [%s]
request: {path: '/items/{item}'}
stock: {http: {set: 'PUT /items/{item}', body: '{"units": {count}}', read: 'GET /items/{item}', field: units}}
%s`, strings.Join(urls, ", "), more)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func runShop(t *testing.T, file string, more ...string) (got result, dir string) {
	t.Helper()
	dir = t.TempDir()
	return finish(t, append([]string{"run", "--quick", "--service", file, "--out", dir}, more...)...), dir
}

func TestAServiceThatIsRunningIsJudged(t *testing.T) {
	t.Parallel()
	s := &shop{sell: sellOne}
	got, dir := runShop(t, describe(t, s.start(t, 2), "remaining: left\nidempotency_header: Key"))
	got.want(t, exitHeld)
	r := mustReadReport(t, dir)
	if len(r.Rows) != 4 || len(r.Rows[0].ReplicaShares) != 2 {
		t.Errorf("%d rows, shares %v: want four workloads, on two replicas", len(r.Rows), r.Rows[0].ReplicaShares)
	}
	if !slices.ContainsFunc(r.Rows, func(row *report.Row) bool { return row.AgainElsewhere > 0 }) {
		t.Error("no request was sent again to another replica")
	}
	if slices.ContainsFunc(r.Environment.Notes, func(n string) bool { return strings.Contains(n, "remaining") }) {
		t.Errorf("the notes %q say that remaining is missing", r.Environment.Notes)
	}
}

func TestWhatAServiceDoesWrongIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sell func(s *shop, w http.ResponseWriter, item string)
		code int
		want string
	}{
		"sells more than there is": {func(s *shop, _ http.ResponseWriter, item string) {
			s.stock[item]--
		}, exitNotHeld, "units sold beyond the stock"},
		"refuses with stock left": {func(s *shop, w http.ResponseWriter, item string) {
			if s.asked%7 == 0 && s.asked > 10 {
				w.WriteHeader(http.StatusConflict)
				return
			}
			sellOne(s, w, item)
		}, exitNotHeld, "was refused while at least"},
		"fails now and then": {func(s *shop, w http.ResponseWriter, item string) {
			if s.asked%7 == 0 && s.asked > 10 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			sellOne(s, w, item)
		}, exitInconclusive, "requests is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shop{sell: test.sell}
			got, _ := runShop(t, describe(t, s.start(t, 1), ""))
			got.want(t, test.code, test.want, "not judged: whether every replica sells")
		})
	}
}

// The database of a service that is running is the user's.
func TestAServiceOnTheUsersPostgresIsJudged(t *testing.T) {
	t.Parallel()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{Relaxed: true})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, server.Stop(t.Context())) }()
	db, err := service.OpenPostgres(server.DSN("postgres"), "")
	must.Succeed(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE item (id BIGINT PRIMARY KEY, units BIGINT NOT NULL)")
	must.Succeed(t, err)
	for condition, want := range map[string]int{"units >= 1": exitHeld, "TRUE": exitNotHeld} {
		shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			update := "UPDATE item SET units = units - 1 WHERE id = $1 AND " + condition
			result, err := db.ExecContext(r.Context(), update, strings.TrimPrefix(r.URL.Path, "/"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if n, _ := result.RowsAffected(); n == 0 {
				w.WriteHeader(http.StatusConflict)
			}
		}))
		t.Cleanup(shop.Close)
		file := filepath.Join(t.TempDir(), "shop.yaml")
		must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, `url: %s
database: %s
request: {path: '/{item}'}
stock:
  sql:
    set: INSERT INTO item VALUES ({item}, {count}) ON CONFLICT (id) DO UPDATE SET units = {count}
    read: SELECT units FROM item WHERE id = {item}
`, shop.URL, server.DSN("postgres")), 0o600))
		got, _ := runShop(t, file, "--requests", "300")
		if got.code != want || want == exitNotHeld && !strings.Contains(got.stdout, "postgres: wrong (item 1: units sold ") {
			t.Errorf("%s: exit status %d, want %d\n%s%s", condition, got.code, want, got.stdout, got.stderr)
		}
	}
}

// answering returns a sell that answers with a status and a body, and sells if it is to.
func answering(status int, body string, sells bool) func(*shop, http.ResponseWriter, string) {
	return func(s *shop, w http.ResponseWriter, item string) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		if sells {
			s.stock[item]--
		}
	}
}

func TestADescriptionThatIsWrongIsAClearError(t *testing.T) {
	t.Parallel()
	const nobody = "http://127.0.0.1:1"
	for name, test := range map[string]struct {
		sell func(*shop, http.ResponseWriter, string)
		url  string // in place of the shop's
		more string
		want string
	}{
		"nobody listens": {url: nobody, want: "connection refused"},
		"wrong path":     {url: "http://127.0.0.1/%s/wrong", want: "set the stock with "},
		"HTML":           {sell: answering(200, "<html>welcome", false), want: "the stock went from 10 to 10"},
		"sells two": {sell: func(s *shop, _ http.ResponseWriter, item string) {
			s.stock[item] -= 2
		}, want: "the stock went from 10 to 8"},
		"status": {sell: answering(302, "over there", true), want: "answered 302 Found: over there to POST /items/1"},
		"field": {sell: answering(200, `{"code": 5}`, true), more: "sold: {field: code, value: 0}",
			want: `answered 200 OK: {"code": 5}`},
		"sold out": {sell: func(s *shop, w http.ResponseWriter, item string) {
			if s.stock[item] == 0 {
				http.Error(w, "too late", http.StatusGone)
				return
			}
			sellOne(s, w, item)
		}, want: "410 Gone: too late to POST /items/1 at"},
		"no remaining": {sell: sellOne, more: "remaining: rest", want: "no number in the field rest"},
		"wrong remaining": {sell: answering(200, `{"left": 3}`, true), more: "remaining: left",
			want: "says that 3 units remain"},
		"hangs up": {sell: func(*shop, http.ResponseWriter, string) {
			panic(http.ErrAbortHandler)
		}, want: "did not answer POST /items/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shop{sell: test.sell}
			urls := s.start(t, 1)
			if test.url != "" {
				urls[0] = strings.Replace(test.url, "127.0.0.1/%s", strings.TrimPrefix(urls[0], "http://"), 1)
			}
			got, dir := runShop(t, describe(t, urls, test.more))
			text := strings.TrimSuffix(strings.TrimSpace(got.stderr), ":\nsold_out: {status: 410}")
			if got.code != exitUnusable || strings.Contains(text, "\n") || !strings.Contains(text, test.want) {
				t.Errorf("exit status %d, want %d and %q in one line\n%s", got.code, exitUnusable, test.want, got.stderr)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v, left behind: %v", err, left)
			}
		})
	}
}

// soldOut returns a sell that answers in one way if there is a unit, and in another if there is none. @ stands for a
// number that differs from answer to answer.
func soldOut(status int, sale string, noneStatus int, none string) func(*shop, http.ResponseWriter, string) {
	return func(s *shop, w http.ResponseWriter, item string) {
		status, answer := status, sale
		if s.stock[item] < 1 {
			status, answer = noneStatus, none
		} else {
			s.stock[item]--
		}
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(answer, "@", strconv.Itoa(s.asked)))
	}
}

// A correct service must not be called wrong because its description does not say how it answers when it is sold out.
func TestAnAnswerForSoldOutThatIsNotDescribedIsAClearError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status     int
		sale       string
		noneStatus int
		none       string
		more       string // of the description
		lines      string // that the error has
	}{
		"field": {200, `{"ok":true}`, 200, `{"ok":false}`, "", "sold_out: {field: ok, value: false}"},
		"no field in sales": {
			200, `{"id":"a@"}`, 200, `{"id":"a@","error":"sold out"}`, "", `sold_out: {field: error, value: "sold out"}`,
		},
		"field only in sales": {
			200, `{"done":true,"left":"@"}`, 200, `{}`, "", "sold: {field: done, value: true}\nsold_out: {status: 200}",
		},
		"status": {201, `{"order":@}`, 200, `{"order":null}`, "",
			"sold: {status: 201}\nsold_out: {status: 200}"},
		"field, and sold has another": {
			200, `{"code":0,"msg":"yours"}`, 200, `{"code":0,"msg":"gone"}`, "sold: {field: code, value: 0}",
			"sold: {field: msg, value: yours}\nsold_out: {field: msg, value: gone}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shop{sell: soldOut(test.status, test.sale, test.noneStatus, test.none)}
			urls := s.start(t, 2)
			got, _ := runShop(t, describe(t, urls, test.more))
			answer := fmt.Sprintf("answered %d %s: ", test.noneStatus, http.StatusText(test.noneStatus))
			got.want(t, exitUnusable, answer, "with nothing in stock", "\n"+test.lines+"\n")
			if strings.Contains(test.lines, "sold:") {
				test.more = ""
			}
			got, _ = runShop(t, describe(t, urls, test.more+"\n"+test.lines), "--requests", "300")
			got.want(t, exitHeld)
		})
	}
	s := &shop{sell: soldOut(200, "sold", 200, "sold out")}
	got, _ := runShop(t, describe(t, s.start(t, 1), ""))
	got.want(t, exitUnusable, "200 OK: sold out to POST /items/1", "give it a status, or a field of JSON")
}

func TestTheExplorerAsksForSoldOutToo(t *testing.T) {
	t.Parallel()
	serverstest.NeedService(t, "python")
	program, err := filepath.Abs("internal/explore/testdata/odd.py")
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "shop.yaml")
	text := fmt.Sprintf(`command: /usr/bin/python3 %s usual
migrate: /usr/bin/python3 %[1]s migrate
request: {path: '/items/{item}/{count}', headers: {Authorization: secret}}
stock:
  sql:
    set: INSERT INTO good_stock VALUES ({item}, {count}) ON DUPLICATE KEY UPDATE stock = {count}
    read: SELECT stock FROM good_stock WHERE goods_id = {item}
`, program)
	const line = "sold_out: {field: sold, value: false}\n"
	for text, code := range map[string]int{text: exitUnusable, text + line: exitHeld} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		got := finish(t, "explore", "--quick", "--lanes", "1", "--service", file)
		if got.want(t, code); code == exitUnusable {
			got.want(t, code, `answered 200 OK: {"sold": false} to POST /items/`, "\n"+line)
		}
	}
}

// What sells at a stock of 0 answers as to any sale. The load convicts it.
func TestASaleOfNothingIsNotTakenForSoldOut(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]string{
		"numbers and ids": {`{"ok":true,"left":%d,"id":"x@","at":"12:@","order":"abc"}`},
		"servers":         {`{"server":"a"}`, `{"server":"b"}`, `{"server":"b"}`, `{"server":"b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shop{sell: func(s *shop, w http.ResponseWriter, item string) {
				s.stock[item] = max(0, s.stock[item]-1)
				answer := strings.ReplaceAll(answers[s.asked%len(answers)], "@", strconv.Itoa(s.asked))
				fmt.Fprint(w, strings.ReplaceAll(answer, "%d", strconv.FormatInt(s.stock[item], 10)))
			}}
			got, _ := runShop(t, describe(t, s.start(t, 1), ""), "--requests", "300")
			got.want(t, exitNotHeld, "units sold beyond the stock")
		})
	}
}

func TestAServiceOnAPortOfItsOwnIsToldWhereToListen(t *testing.T) {
	t.Parallel()
	serverstest.NeedService(t, "python")
	file := filepath.Join(t.TempDir(), "shop.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(`
command: [sh, -c, "echo open; /usr/bin/python3 -u -m http.server --bind 127.0.0.1 0; :"]
request: {path: '/{item}/{count}'}
stock: {redis: {set: 'SET {item} {count}', read: 'GET {item}'}}
`), 0o600))
	cmd := command(t, "run", "--service", file)
	stderr, err := cmd.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines, said := bufio.NewScanner(stderr), ""
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Serving HTTP on 127.0.0.1 port ") {
		said += lines.Text() + "\n"
	}
	told := regexp.MustCompile(`listens at 127\.0\.0\.1:\d+, .* must listen at LISTEN=127.*; its log ends with:\nopen\n$`)
	if !told.MatchString(said) || strings.Contains(said, context.DeadlineExceeded.Error()) {
		t.Errorf("while it waits, it says:\n%s", said)
	}
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait() // exitInterrupted
}

func TestFlagsOfStrategiesAreNotForAService(t *testing.T) {
	t.Parallel()
	file := describe(t, []string{"http://127.0.0.1:1"}, "")
	for want, args := range map[string][]string{
		"--strategies cannot be used": {"run", "--service", file, "--strategies", "update"},
		"--store cannot be used":      {"run", "--service", file, "--store", "redis"},
		"url lists the replicas":      {"run", "--service", file, "--replicas", "2"},
		"no such file or directory":   {"run", "--service", file + "x"},
		"needs the command":           {"explore", "--service", file},
		"stands in the file":          {"explore", "--service", file, "--", "sh"},
		"--mysql-dsn and --redis need url": {
			"run", "--service", "examples/php/right.yaml", "--redis", "127.0.0.1:1",
		},
	} {
		finish(t, args...).want(t, exitUnusable, want)
	}
}

func TestTheEnvironmentsFlagsForStrategiesAreNotForAService(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"LOADTEST_STORE": "redis", "LOADTEST_STRATEGIES": "update", "LOADTEST_REPLICAS": "4", "LOADTEST_TARGET": "http://a",
	}
	runWith(t.Context(), environment, "run", "--service", describe(t, []string{"http://127.0.0.1:1"}, "")).
		want(t, exitUnusable, "127.0.0.1:1: connect: connection refused")
}

// dying is a program that sells as the example in Python, has a process beside it, and ends after some requests.
const dying = `import http.server, os, runpy, subprocess
subprocess.Popen(["sh", "-c", "echo $$ >> %[1]s/pids; exec sleep 1000"])
handle, asked = http.server.BaseHTTPRequestHandler.handle, []

def counted(self):
    asked.append(self)
    if len(asked) > 150:
        print("enough", flush=True)
        os._exit(7)
    handle(self)

http.server.BaseHTTPRequestHandler.handle = counted
runpy.run_path("%[2]s/python/right.py")
`

func TestNothingOfAServiceThatDiesIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serverstest.NeedService(t, "python")
	examples, err := filepath.Abs("examples")
	must.Succeed(t, err)
	described, err := os.ReadFile("examples/python/right.yaml")
	must.Succeed(t, err)
	for name, text := range map[string]string{
		"right.py": fmt.Sprintf(dying, dir, examples),
		"my.yaml":  strings.Replace(string(described), "../shop.sql", examples+"/shop.sql", 1),
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	finish(t, "run", "--service", filepath.Join(dir, "my.yaml"), "--out", filepath.Join(dir, "out")).
		want(t, exitUnusable, "(exit status 7); its log ends with:\nenough")
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	must.Succeed(t, err)
	for pid := range strings.FieldsSeq(string(pids)) {
		if state, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(state), ") Z ") {
			t.Errorf("process %s is left", pid)
		}
	}
}
