package explore

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/topology"
)

func TestAProcessWithDeadChildrenIsAsleep(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc here, which tells what a process does")
	}
	t.Parallel()
	// The shell becomes a program that does not wait for its children.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "true & exec sleep 1000")
	must.Succeed(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	r := &replica{Replica: &topology.Replica{PID: cmd.Process.Pid}}
	serverstest.Eventually(t, "the child is dead", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", bytes.TrimSpace(children)))
		return bytes.Contains(state, []byte(") Z "))
	})
	serverstest.Eventually(t, "the process is asleep", func() bool { return !r.awake() })
}

func TestWhatAReplicaLooksForInTheBackgroundIsNoStep(t *testing.T) {
	t.Parallel()
	l := &lane{now: &schedule{}, names: []string{"5000007"}, sticky: map[*wire.Conn]bool{}}
	for text, step := range map[string]bool{
		"XINFO stream stock:{5000001}:sales\nXINFO stream stock:{5000007}:sales":     false,
		"EXISTS stock:{5000007}:sales":                                               false,
		"SELECT goods_id FROM reservation WHERE state = 'held'":                      false,
		"XREADGROUP group stock replica-1 count 256 streams stock:{5000007}:sales >": true,
		"SELECT stock FROM good_stock WHERE goods_id = 5000007":                      true,
	} {
		e := &wire.Exchange{Conn: &wire.Conn{}, Text: text}
		if got := l.concerned(e, false) != nil; got != step || looksForWork(e) == step {
			t.Errorf("%s: a step %v, looks for work %v", text, got, looksForWork(e))
		}
	}
}

// A message that cannot be read may be anything, also if the service sent one like it without a request.
func TestAMessageThatCannotBeReadIsAStepAlsoInTheBackground(t *testing.T) {
	t.Parallel()
	for parts, step := range map[string]bool{"": false, "the message does not say what is executed": true} {
		l := &lane{subject: Service{}, watching: true, idle: map[string]bool{}, sticky: map[*wire.Conn]bool{}}
		e := &wire.Exchange{Conn: &wire.Conn{}, Text: "EXECUTE 7", Parts: parts}
		l.concerned(e, false)
		l.watching, l.now = false, &schedule{lane: l}
		if got := l.concerned(e, true) != nil; got != step {
			t.Errorf("%q: a step %v, want %v", parts, got, step)
		}
	}
}

func TestStepsThatNobodyChoseAreSortedByActor(t *testing.T) {
	t.Parallel()
	step := func(actor, text string, kind trace.Kind) *trace.Step {
		return &trace.Step{Actor: actor, Text: text, Kind: kind}
	}
	commit, insert := step("B", "COMMIT", trace.Executes), step("B", "INSERT", trace.Executes)
	resumes, begin := step("A", "UPDATE", trace.Resumes), step("B", "START TRANSACTION", trace.Passes)
	want := []trace.Step{*commit, *resumes, *begin, *insert}
	for _, steps := range [][]*trace.Step{{commit, resumes, begin, insert}, {commit, begin, resumes, insert}} {
		if got := (&schedule{steps: steps}).trace(); !slices.Equal(got, want) {
			t.Errorf("the trace is %v, want %v", got, want)
		}
	}
}
