package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// watching is a tab of the console, as far as the server can see it.
type watching struct {
	t      *testing.T
	url    string
	events *bufio.Reader
}

// consoleState is the part of the state that the tests look at.
type consoleState struct {
	Busy string `json:"busy"`
	Run  *struct {
		ID       int      `json:"id"`
		Ended    bool     `json:"ended"`
		Result   string   `json:"result"`
		Report   string   `json:"report"`
		Problems []string `json:"problems"`
		Rows     []struct{ Name, Result, Evidence string }
		Cell     *struct {
			Name    string `json:"name"`
			Samples []struct {
				Sold, Inside int64
				Gone         *int64
			}
		} `json:"cell"`
	} `json:"run"`
	Fault *struct {
		ID    int `json:"id"`
		Steps []struct {
			Text  string
			Scene struct {
				MySQL   *struct{ Stock int64 }
				Locks   []struct{ Owner string }
				Holders []string
			}
		}
		Waiting   bool   `json:"waiting"`
		Ended     bool   `json:"ended"`
		Outcome   string `json:"outcome"`
		ClaimHeld bool   `json:"claim_held"`
		Report    string `json:"report"`
	} `json:"fault"`
}

// watch opens a tab.
func watch(t *testing.T, url string) *watching {
	t.Helper()
	response, err := http.Get(url + "events")
	must.Succeed(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return &watching{t: t, url: url, events: bufio.NewReaderSize(response.Body, 1<<20)}
}

// next waits for the next state. It returns false when the server has ended the stream.
func (w *watching) next() (s consoleState, more bool) {
	w.t.Helper()
	for {
		line, err := w.events.ReadString('\n')
		if err != nil {
			return s, false
		}
		if text, found := strings.CutPrefix(line, "data: "); found {
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				w.t.Fatal(err)
			}
			return s, true
		}
	}
}

// until waits for a state.
func (w *watching) until(what string, is func(consoleState) bool) consoleState {
	w.t.Helper()
	var s consoleState
	for began := time.Now(); time.Since(began) < 5*time.Minute; {
		var more bool
		if s, more = w.next(); !more {
			w.t.Fatalf("the stream ended before %s", what)
		}
		if is(s) {
			return s
		}
	}
	w.t.Fatalf("minutes went by without %s; the state is %+v", what, s)
	return s
}

// post asks the console for something, and wants a status. It returns the reply.
func (w *watching) post(want int, path, body string) string {
	w.t.Helper()
	response, err := http.Post(w.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		w.t.Errorf("%s %s: status %d, %v, %s; want %d", path, body, response.StatusCode, err, reply, want)
	}
	return string(reply)
}

// mustRefuse expects 409 and words.
func (w *watching) mustRefuse(path, body, words string) {
	w.t.Helper()
	if reply := w.post(http.StatusConflict, path, body); !strings.Contains(reply, words) {
		w.t.Errorf("%s %s: %s, want %q", path, body, reply, words)
	}
}

// about is a request about a run or a fault.
func about(id int) string { return fmt.Sprintf(`{"id":%d}`, id) }

// runOf asks for a run of a strategy.
func runOf(strategy string, requests int) string {
	return fmt.Sprintf(`{"strategies":[%q],"users":20,"hold_ms":0,"workload":"plenty","requests":%d,"rounds":1,`+
		`"items":1}`, strategy, requests)
}

// What a tab asks for ends as it should, and leaves no goroutine.
func TestConsoleEndsWhatItBegins(t *testing.T) {
	t.Parallel()
	d, cmd, stderr := up(t)
	tab := watch(t, d.Console)
	over := func() consoleState {
		t.Helper()
		return tab.until("the end", func(s consoleState) bool { return s.Busy == "" && s.Run != nil && s.Run.Ended })
	}
	tab.post(http.StatusConflict, "cancel", "{}")
	tab.post(http.StatusNoContent, "run", runOf("none", 300))
	run := over().Run
	wrong := slices.ContainsFunc(run.Rows, func(row struct{ Name, Result, Evidence string }) bool {
		return row.Name == "none, plenty" && row.Result == "wrong" && row.Evidence != ""
	})
	if run.Result != "held" || !wrong {
		t.Errorf("the run ended with %+v, want that none was found wrong, as it claims", run)
	}
	mustServe(t, d.Console, run.Report)

	first := tab.begin().Run.ID
	tab.mustRefuse("run", runOf("none", 10), "a run is going on")
	tab.post(http.StatusConflict, "fault", `{"scenario":"late-write","strategy":"update"}`)
	tab.post(http.StatusConflict, "cancel", "{}")
	tab.post(http.StatusNoContent, "cancel", about(first))
	if run := over().Run; run.Result != "canceled" || run.Report == "" || len(run.Problems) == 0 {
		t.Errorf("the run ended with %+v, want a report that says that it was canceled", run)
	}

	second := tab.begin().Run.ID
	tab.mustRefuse("cancel", about(first),
		fmt.Sprintf("number %d is not going on: number %d is, a run", first, second))
	must.Succeed(t, syscall.Kill(d.Replicas[1].PID, syscall.SIGKILL))
	run = over().Run
	killed := strings.Count(strings.Join(run.Problems, "\n"), "replica-2 ended (signal: killed)")
	if run.Result != "ended early" || killed != 1 || run.Report == "" {
		t.Errorf("the run ended with %+v, want a report that says once that replica-2 was killed", run)
	}
	tab.mustRefuse("run", runOf("update", 10), "replica-2 is dead")
	deduct(t, d.Replicas[0].URL) // the others go on

	tab.post(http.StatusNoContent, "fault", `{"scenario":"holder-dies","strategy":"update"}`)
	s := tab.until("the fault", func(s consoleState) bool { return s.Busy == "fault" })
	tab.post(http.StatusNoContent, "fault/finish", about(s.Fault.ID))
	tab.until("the end of the fault", func(s consoleState) bool { return s.Busy == "" && s.Fault.Ended })
	mustLeaveNoGoroutines(t, cmd, stderr)
}

// begin begins a run that takes long, and waits until it measures.
func (w *watching) begin() consoleState {
	w.t.Helper()
	w.post(http.StatusNoContent, "run", runOf("update", 100_000))
	return w.until("a sample", func(s consoleState) bool { return s.Busy == "run" && s.Run.Cell != nil })
}

// mustServe fails the test unless the console serves a report in a sandbox, and nothing else of its directory.
func mustServe(t *testing.T, console, report string) {
	t.Helper()
	other := func(name string) string { return strings.Replace(report, "report.html", name, 1) }
	for path, want := range map[string]int{
		report: http.StatusOK, other("report.json"): http.StatusOK, other("manifest.json"): http.StatusNotFound,
		"/runs/nothing/report.html": http.StatusNotFound,
	} {
		response, err := http.Get(strings.TrimSuffix(console, "/") + path)
		must.Succeed(t, err)
		response.Body.Close()
		const sandbox = "sandbox allow-scripts allow-popups allow-modals; default-src 'none'; "
		policy := response.Header.Get("Content-Security-Policy")
		if response.StatusCode != want || want == http.StatusOK && !strings.HasPrefix(policy, sandbox) {
			t.Errorf("%s: status %d, policy %q, want %d and %q first", path, response.StatusCode, policy, want, sandbox)
		}
	}
}

// mustLeaveNoGoroutines ends a lab in which everything is over and one replica is dead, and looks at the goroutines
// that it still had.
func mustLeaveNoGoroutines(t *testing.T, cmd *exec.Cmd, stderr io.Reader) {
	t.Helper()
	processes := len(children(t, cmd.Process.Pid))
	must.Succeed(t, cmd.Process.Signal(syscall.SIGQUIT)) // prints what every goroutine does
	dump, err := io.ReadAll(stderr)
	must.Succeed(t, err)
	_ = cmd.Wait()
	watching := 0
	for routine := range strings.SplitSeq(string(dump), "\n\n") {
		for _, ended := range []string{"internal/fault.", "internal/load.", "internal/traffic.", "console.(*measuring)"} {
			if strings.Contains(routine, ended) {
				t.Errorf("a goroutine goes on after the end of what it was for:\n%s", routine)
			}
		}
		if strings.Contains(routine, "topology.(*Topology).Died") {
			watching++
		}
	}
	if !strings.Contains(string(dump), "replica-2 ended (signal: killed)") {
		t.Errorf("up did not report that replica-2 was killed:\n%s", dump)
	}
	// One watches each process, and one waits for those.
	if most := processes + 1; watching == 0 || watching > most {
		t.Errorf("%d goroutines watch %d processes, want at most %d\n%s", watching, processes, most, dump)
	}
}

// stepThroughAScenario plays two scenarios step by step, and ends the lab with Ctrl-C during a third.
func stepThroughAScenario(t *testing.T, d described, cmd *exec.Cmd) {
	tab := watch(t, d.Console)
	tab.post(http.StatusConflict, "fault/next", `{"id":1,"steps":1}`)
	tab.post(http.StatusNoContent, "fault", `{"scenario":"late-write","strategy":"lock-redis-lua"}`)
	s := tab.until("the first step", func(s consoleState) bool { return s.Fault != nil && s.Fault.Waiting })
	id := s.Fault.ID
	if asks := s.Fault.Steps[0].Text; asks != "A asks the victim for 1 of the item" {
		t.Errorf("the first step is %q, want that A asks", asks)
	}
	tab.post(http.StatusNoContent, "fault/next", fmt.Sprintf(`{"id":%d,"steps":1}`, id))
	s = tab.until("the second step", func(s consoleState) bool { return len(s.Fault.Steps) > 1 && s.Fault.Waiting })
	first := s.Fault.Steps[1]
	if len(s.Fault.Steps) != 2 || first.Scene.MySQL == nil || first.Scene.MySQL.Stock != 16 ||
		len(first.Scene.Locks) != 1 || first.Scene.Holders[0] != "A" {
		t.Errorf("the second step is %+v, want that A holds the lock and 16 units are in MySQL", first)
	}
	tab.post(http.StatusConflict, "run", runOf("none", 10))
	for { // B may be refused until the lease has ended
		seen := len(s.Fault.Steps)
		body := fmt.Sprintf(`{"id":%d,"steps":%d}`, id, seen)
		tab.post(http.StatusNoContent, "fault/next", body)
		tab.post(http.StatusNoContent, "fault/next", body) // does not play another one
		s = tab.until("the next step", func(s consoleState) bool { return len(s.Fault.Steps) > seen && s.Fault.Waiting })
		last := s.Fault.Steps[len(s.Fault.Steps)-1]
		if strings.Contains(last.Text, "has bought 2") {
			if last.Scene.MySQL.Stock != 14 {
				t.Errorf("%q, and then %+v is in MySQL, want 14 units", last.Text, last.Scene.MySQL)
			}
			break
		}
	}
	tab.post(http.StatusNoContent, "fault/finish", about(id))
	s = tab.until("the end of the fault", func(s consoleState) bool { return s.Busy == "" && s.Fault.Ended })
	if s.Fault.Outcome != "unsafe" || !s.Fault.ClaimHeld || s.Fault.Report == "" {
		t.Errorf("the fault ended with %+v, want unsafe, as claimed, with a report", s.Fault)
	}

	tab.post(http.StatusNoContent, "fault", `{"scenario":"holder-pauses","strategy":"lock-redis-watchdog"}`)
	s = tab.until("a step", func(s consoleState) bool { return s.Busy == "fault" && s.Fault.Waiting })
	tab.post(http.StatusConflict, "fault/next", fmt.Sprintf(`{"id":%d,"steps":9}`, id)) // it has ended
	tab.post(http.StatusConflict, "fault/finish", about(id))
	tab.post(http.StatusNoContent, "cancel", about(s.Fault.ID))
	s = tab.until("the end of the fault", func(s consoleState) bool { return s.Busy == "" })
	if s.Fault.Outcome != "canceled" {
		t.Errorf("the fault ended with %q, want canceled", s.Fault.Outcome)
	}
	tab.post(http.StatusNoContent, "fault", `{"scenario":"holder-dies","strategy":"update"}`)
	tab.until("a step", func(s consoleState) bool { return s.Busy == "fault" && s.Fault.Waiting })
	pids := children(t, cmd.Process.Pid)
	interrupt(t, cmd) // during a fault
	d.gone(t)
	serverstest.Gone(t, pids, nil)
	for more := true; more; { // the stream ends, though some states may still be on their way
		_, more = tab.next()
	}
}

func refuseOtherOriginsAndRubbish(t *testing.T, d described) {
	for _, test := range []struct {
		method, path, body string
		header             map[string]string
		status             int
		words              string
	}{
		{"POST", "cancel", "{}", map[string]string{"Origin": "http://example.com"}, 403, "its own page only"},
		{"GET", "state", "", map[string]string{"Origin": "http://localhost:1"}, 403, "its own page only"},
		{"GET", "", "", map[string]string{
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
		}, 200, "The lab"},
		{"GET", "", "", map[string]string{"Host": "rebound.example:8001"}, 421, "is not the address of this lab"},
		{"POST", "run", "{}", map[string]string{"Content-Type": "text/plain"}, 415, "must be JSON"},
		{"POST", "run", "strategies", nil, 400, "cannot be understood"},
		{"POST", "run", `{"strategies":["none"]} {}`, nil, 400, "one JSON object"},
		{"POST", "run", strings.Replace(runOf("none", 10), "plenty", "pl enty", 1), nil, 400, "--workload"},
		{"POST", "run", `{"color":"red"}`, nil, 400, "unknown field"},
		{"POST", "run", `{}`, nil, 400, "at least one strategy"},
		{"POST", "run", runOf("nothing", 10), nil, 400, `no strategy is named \"nothing\"`},
		{"POST", "run", runOf("none --out=/etc", 10), nil, 400, "neither spaces nor commas"},
		{"POST", "run", runOf("none", -1), nil, 400, "--requests -1"},
		{"POST", "fault", `{"scenario":"late","strategy":"update"}`, nil, 400, "no scenario"},
		{"POST", "fault", `{"scenario":"late-write","strategy":"up"}`, nil, 400, "no strategy"},
		{"POST", "fault", `{"scenario":"long-work","strategy":"update"}`, nil, 400, "means nothing for update"},
		{"POST", "fault/next", `{}`, nil, 400, "0 steps"},
		{"POST", "paint", "{}", nil, 404, ""},
	} {
		request, err := http.NewRequest(test.method, d.Console+test.path, strings.NewReader(test.body))
		must.Succeed(t, err)
		request.Header.Set("Content-Type", "application/json")
		for name, value := range test.header {
			request.Header.Set(name, value)
		}
		request.Host = test.header["Host"]
		response, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		reply, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		response.Body.Close()
		if response.StatusCode != test.status || !bytes.Contains(reply, []byte(test.words)) {
			t.Errorf("%s /%s %s %v: status %d, want %d and %q\n%.300s",
				test.method, test.path, test.body, test.header, response.StatusCode, test.status, test.words, reply)
		}
		if policy := response.Header.Get("Content-Security-Policy"); test.path != "paint" &&
			!strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "http") {
			t.Errorf("%s /%s: the policy is %q", test.method, test.path, policy)
		}
	}
}

func TestConsoleCanBeTurnedOffAndGetsAnotherPortIfItsUsualOneIsTaken(t *testing.T) {
	t.Parallel()
	if taken, err := net.Listen("tcp", usualConsole); err == nil { // or another program has it
		defer taken.Close()
	}
	for want, args := range map[string][]string{"none": {"--console="}, "another": nil} {
		var f upFlags
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		f.register(flags)
		f.given = flags
		must.Succeed(t, flags.Parse(args))
		listener, err := f.listenForConsole()
		must.Succeed(t, err)
		if (listener == nil) != (want == "none") {
			t.Errorf("up %v listens at %v, want %s", args, listener, want)
		}
		if listener != nil {
			listener.Close()
		}
	}
}

func TestConsoleShowsACommandThatRunsTheSameInATerminal(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"":              nil,
		" --replicas=3": {"--replicas=3", "--lease=2s", "--listen=127.0.0.1:0"},
		" --etcd-members=3 --redis-cluster=true --replicas=1": {"--replicas=1", "--redis-cluster", "--etcd-members=3"},
		" --redis-user=lab --redis=a:1,b:1": {
			"--redis=a:1,b:1", "--redis-user=lab", "--mysql-dsn=secret@tcp(c:1)/",
		},
	} {
		var f upFlags
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		f.register(flags)
		must.Succeed(t, flags.Parse(args))
		got, note := f.runCommand(flags)
		words := strings.Fields(strings.TrimPrefix(got, "go run ./loadtest run"))
		slices.Sort(words)
		noted := strings.Contains(note, "LOADTEST_MYSQL_DSN")
		if !slices.Equal(words, strings.Fields(want)) || noted != (f.servers.mysqlDSN != "") {
			t.Errorf("up %v: %q, want %q; before it, %q", args, got, want, note)
		}
		given := strings.Fields(strings.TrimPrefix(got, "go run ./loadtest run"))
		if replicas := runFlagsOf(t, given).Replicas; replicas != f.replicas {
			t.Errorf("%s reports %d replicas; want %d", got, replicas, f.replicas)
		}
	}
}
