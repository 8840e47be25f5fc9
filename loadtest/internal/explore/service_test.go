package explore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/service"
)

// oddService returns the command of a service in Python that has a habit, or a task.
func oddService(t *testing.T, does string) []string {
	t.Helper()
	serverstest.NeedService(t, "python")
	return []string{"/usr/bin/python3", "testdata/odd.py", does}
}

// read reads the description of an example.
func read(t *testing.T, language, variant string) explore.Service {
	t.Helper()
	d, err := service.Read(filepath.Join("../../examples", language, variant+".yaml"), os.Getenv)
	must.Succeed(t, err)
	return explore.Service{Description: d}
}

// own returns a description with the usual request and stock.
func own(command []string) explore.Service {
	return explore.Service{Description: service.Default(command)}
}

func startOwn(t *testing.T, o explore.Options) *explore.Explorer {
	t.Helper()
	x, err := explore.Start(t.Context(), start(t).lab.Topology, o)
	must.Succeed(t, err)
	t.Cleanup(x.Close)
	return x
}

func exploreOwn(t *testing.T, x *explore.Explorer, s explore.Service, bounds trace.Bounds) trace.Result {
	t.Helper()
	r, err := x.Explore(t.Context(), load.OwnService(s.Description), bounds)
	must.Succeed(t, err)
	if !r.Judged() {
		t.Errorf("not every schedule was executed and judged: %+v", r.Tally)
	}
	return r
}

func TestServicesInOtherLanguages(t *testing.T) {
	serverstest.EachService(t, func(t *testing.T, language string) {
		damage, update := trace.LostUpdate, "UPDATE products SET quantity = "
		if language == "node" {
			damage, update = trace.Oversold, "UPDATE products SET quantity = quantity - "
		}
		wrong := read(t, language, "wrong")
		x := startOwn(t, explore.Options{Lanes: 1, Requests: 2, Subject: wrong})
		x.Workloads = []string{"enough", "last"}
		r := exploreOwn(t, x, wrong, trace.Bounds{Preemptions: 1})
		s := wantDamage(t, r, "", damage)
		if r.Held() || r.Cells[0].Claim != "" {
			t.Errorf("a service that is wrong is held to be right, or to claim %q", r.Cells[0].Claim)
		}
		if trace := text(t, s.Execution); !strings.Contains(trace, update) {
			t.Errorf("the trace lacks the UPDATE:\n%s", trace)
		}
		file := filepath.Join("../../examples", language, "wrong.yaml")
		if got, want := r.Replay(s.Token), "loadtest explore --service "+file+" --replay "+s.Token; got != want {
			t.Errorf("the replay is %q, want %q", got, want)
		}
		again, err := x.Replay(t.Context(), load.OwnService(wrong.Description), s.Token)
		if err != nil || shape(again) != shape(s.Execution) {
			t.Errorf("%v: the replay is\n%s\nand was\n%s", err, shape(again), shape(s.Execution))
		}
		right := read(t, language, "right")
		x = startOwn(t, explore.Options{Lanes: 1, Requests: 2, Subject: right})
		x.Workloads, x.Faults = []string{"one", "enough"}, []string{explore.LostReply, explore.SentAgain}
		r = exploreOwn(t, x, right, trace.Bounds{Preemptions: 1, Faults: 1})
		wantRight(t, r, "", explore.LostReply)
		wantDamage(t, r, explore.SentAgain, trace.SoldTwice) // it is told so, and not blamed for it
		if !r.Held() {
			t.Error("the service that is right is said to be wrong")
		}
	})
}

func text(t *testing.T, o trace.Execution) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, trace.Write(&b, o.Steps))
	return b.String()
}

// odd returns the service of testdata/odd.py.
func odd(t *testing.T, habit string) explore.Service {
	s := own(oddService(t, habit))
	s.Request = service.Request{
		Method: "POST", Path: "/items/{item}/{count}", Headers: map[string]string{"Authorization": "secret"},
	}
	s.Sold.Field, s.Sold.Value, s.SoldOut.Status = "sold", "true", s.Sold.Status
	return s
}

func TestAProgramMakesTheTables(t *testing.T) {
	t.Parallel()
	s := own(oddService(t, "usual"))
	s.SetupSQL, s.Migrate = "", oddService(t, "migrate")
	x := startOwn(t, explore.Options{Lanes: 1, Requests: 2, Subject: s})
	x.Workloads = []string{"last"}
	wantRight(t, exploreOwn(t, x, s, trace.Bounds{Preemptions: 1}), "")
	s.Migrate = []string{"sh", "-c", "echo no tables today; exit 3"}
	_, err := explore.Start(t.Context(), start(t).lab.Topology, explore.Options{Lanes: 1, Requests: 2, Subject: s})
	if err == nil || !strings.Contains(err.Error(), "exit status 3; its output ends with:\nno tables today") {
		t.Errorf("the error is %v", err)
	}
}

func TestAStepThatIsRepeatedNeedNotWaitForOthers(t *testing.T) {
	t.Parallel()
	s := own(oddService(t, "rereads"))
	x := startOwn(t, explore.Options{Lanes: 1, Requests: 2, Subject: s})
	x.Workloads = []string{"last"}
	wantDamage(t, exploreOwn(t, x, s, trace.Bounds{Preemptions: 1}), "", trace.Oversold)
}

func TestStepsNeedNotNameTheItem(t *testing.T) {
	t.Parallel()
	s := odd(t, "renamed")
	s.SetupSQL = `CREATE TABLE product (id INT AUTO_INCREMENT PRIMARY KEY, sku VARCHAR(20) UNIQUE);
		CREATE TABLE inventory (product_id INT PRIMARY KEY, units INT NOT NULL); CREATE TABLE job (id INT PRIMARY KEY)`
	s.Stock.SQL.Set = `INSERT IGNORE INTO product (sku) VALUES ('{item}');
		REPLACE INTO inventory SELECT id, {count} FROM product WHERE sku = '{item}'`
	s.Stock.SQL.Read = "SELECT units FROM inventory JOIN product ON id = product_id WHERE sku = '{item}'"
	x := startOwn(t, explore.Options{Lanes: 1, Requests: 2, Subject: s})
	x.Workloads = []string{"enough"}
	r := exploreOwn(t, x, s, trace.Bounds{Preemptions: 1})
	trace := text(t, wantDamage(t, r, "", trace.LostUpdate).Execution)
	if !strings.Contains(trace, "UPDATE inventory SET units = ") || strings.Contains(trace, "job") {
		t.Errorf("the steps are not those of the requests:\n%s", trace)
	}
}

func TestAServiceMaySleepBetweenTwoTries(t *testing.T) {
	t.Parallel()
	s := odd(t, "sleeps")
	s.Stock = service.Stock{Redis: &service.Store{Set: "SET stock:{item} {count}", Read: "GET stock:{item}"}}
	x := startOwn(t, explore.Options{Lanes: 2, Requests: 2, Subject: s, Pause: 50 * time.Millisecond})
	x.Workloads, x.Faults = []string{"enough"}, []string{explore.ReplicaDies, explore.LeaseEnds}
	r := exploreOwn(t, x, s, trace.Bounds{Preemptions: 1, Faults: 1})
	wantRight(t, r, "")
	wantDamage(t, r, explore.LeaseEnds, trace.LostUpdate)
	if !r.Held() {
		t.Error("a service whose leases end is blamed for what follows")
	}
	if c := cell(t, r, explore.ReplicaDies); c.Waited == 0 || c.Kinds[trace.Right] != c.Schedules {
		t.Errorf("when a holder dies, %d of %d schedules wait for its lease, and %v came of them",
			c.Waited, c.Schedules, c.Kinds)
	}
}

// What a service does when its clients have their answers is in no schedule. Its stock is read too early.
func TestAServiceThatGoesOnAfterItsAnswerIsNotJudged(t *testing.T) {
	t.Parallel()
	s := own(oddService(t, "defers"))
	x := startOwn(t, explore.Options{Lanes: 2, Requests: 2, Subject: s})
	x.Workloads = []string{"enough"}
	r, err := x.Explore(t.Context(), load.OwnService(s.Description), trace.Bounds{Preemptions: 1})
	must.Succeed(t, err)
	c := cell(t, r, "")
	if c.Kinds[trace.Unjudged] != c.Schedules || !r.Held() || r.Judged() {
		t.Errorf("%d schedules led to %v", c.Schedules, c.Kinds)
	}
	why := strings.Join(c.Shortest[trace.Unjudged].Execution.Evidence, "")
	if !strings.Contains(why, "UPDATE good_stock SET stock = stock - ?") {
		t.Errorf("the verdict does not name the statement: %s", why)
	}
}

func TestACommandThatEndsIsAClearError(t *testing.T) {
	t.Parallel()
	for want, command := range map[string][]string{
		"no database today":          {"sh", "-c", "echo no database today; exit 3"},
		`"no-such-program"`:          {"no-such-program"},
		"execute the statements of ": {"sh", "-c", "exit 4"},
	} {
		s := own(command)
		if strings.HasPrefix(want, "execute") {
			s.SetupSQL = "CREATE TABLE"
		}
		x, err := explore.Start(t.Context(), start(t).lab.Topology, explore.Options{Lanes: 1, Requests: 2, Subject: s})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: the error is %v, want it to contain %q", command, err, want)
		}
		if x != nil {
			x.Close()
		}
	}
}
