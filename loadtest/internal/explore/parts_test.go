package explore

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/topology"
)

func TestOnlyTheStrategiesSendTransactionsInOneMessage(t *testing.T) {
	e := &wire.Exchange{Store: "mysql", Text: "UPDATE a SET n = 1; UPDATE b SET n = 1", Several: true}
	strategy, own := &schedule{lane: &lane{}}, &schedule{lane: &lane{subject: &scripted{}}}
	strategy.divide(e)
	own.divide(e)
	if strategy.divided != "" || !strings.Contains(own.divided, "several statements") {
		t.Errorf("a strategy: %q, a service: %q", strategy.divided, own.divided)
	}
}

// slow is a Subject whose stock cannot be set in time after a while.
type slow struct {
	Subject
	sets *int // how often it still can
	err  error
}

func (s slow) setStock(context.Context, *lane, map[int64]int64) error {
	if *s.sets--; *s.sets < 0 {
		return s.err
	}
	return nil
}

func (s slow) running(*lane) *service.Running { return nil }

func (s slow) client(*lane, int, history.Op) client { return nil }

// On a busy machine, the stock may not be set in time: before the first schedule, or before any other. That is no error
// of the user's.
func TestAStockThatIsNotSetInTimeIsNotJudged(t *testing.T) {
	for sets := range 2 {
		left := sets
		subject := slow{sets: &left, err: context.DeadlineExceeded}
		items := func() int64 { return firstItem }
		l := &lane{subject: subject, postgres: "in use", items: items, hidden: map[string]string{}}
		x := &Explorer{lanes: []*lane{l}, subject: subject, requests: 2, warm: map[string]bool{" on ": sets > 0}}
		r, err := x.Explore(t.Context(), load.Choice{}, trace.Bounds{})
		must.Succeed(t, err)
		if r.Judged() || !r.Held() || r.Tally.Example != context.DeadlineExceeded.Error() {
			t.Errorf("after %d times: judged %v, held %v, %+v", sets, r.Judged(), r.Held(), r.Tally)
		}
		left, subject.err = 0, errors.New("no such table")
		l.subject, x.subject = subject, subject
		if _, err := x.Explore(t.Context(), load.Choice{}, trace.Bounds{}); !errors.Is(err, subject.err) {
			t.Errorf("another error is %v", err)
		}
	}
}

func TestAServiceThatCannotSetTheStockInTimeIsNotJudged(t *testing.T) {
	for reply, late := range map[string]bool{
		`503 {"type": "/problems/busy"}`: true, `500 {"type": "/problems/outcome-unknown"}`: true,
		`500 {"type": "/problems/internal"}`: false, `404 {"type": "/problems/not-found"}`: false,
	} {
		status, problem, _ := strings.Cut(reply, " ")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			code, _ := strconv.Atoi(status)
			http.Error(w, problem, code)
		}))
		t.Cleanup(server.Close)
		desk := &replica{Replica: &topology.Replica{AdminURL: server.URL}}
		l := &lane{replicas: []*replica{desk}, items: func() int64 { return firstItem }}
		x := &Explorer{lanes: []*lane{l}, requests: 2, warm: map[string]bool{}}
		r, err := x.Explore(t.Context(), load.Choice{}, trace.Bounds{})
		if (err == nil) != late || r.Judged() || late != strings.Contains(r.Tally.Example, problem) {
			t.Errorf("%s: judged %v, %+v, %v", reply, r.Judged(), r.Tally, err)
		}
	}
}

func TestAClaimOfDamageIsNotRefutedByWhatIsNotJudged(t *testing.T) {
	for _, c := range []struct {
		kinds        []string
		held, judged bool
	}{
		{[]string{trace.Right}, false, true},
		{[]string{trace.Right, trace.Unjudged}, true, false},
		{[]string{trace.Unjudged, trace.LostUpdate}, true, true},
		{[]string{trace.Unjudged, trace.Oversold}, true, false},
	} {
		all := cells{}
		for _, kind := range c.kinds {
			all.collect("", trace.Schedule{Token: kind, Execution: trace.Execution{Kind: kind}})
		}
		r := trace.Result{Exhausted: true, Cells: all.judged(ofScript{"": trace.LostUpdate}, true)}
		if r.Held() != c.held || r.Judged() != c.judged {
			t.Errorf("%v: held %v, judged %v", c.kinds, r.Held(), r.Judged())
		}
	}
}
