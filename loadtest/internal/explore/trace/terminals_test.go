package trace

import (
	"strings"
	"testing"
)

// typedBy returns the text for terminals of a schedule with these steps.
func typedBy(steps ...Step) string {
	r := Result{Strategy: "example", Workloads: []Workload{{Name: "enough", Title: "10 units; A buys 1, B buys 2"}}}
	o := Execution{
		Kind: LostUpdate, Workload: "enough", Stock: map[int64]int64{5_000_007: 10}, Steps: steps,
		Evidence: []string{"item 5000007: units sold but still in stock: 2"},
	}
	return r.Terminals(Cell{Fault: "lease-ends"}, Schedule{Execution: o})
}

func TestATraceCanBeTyped(t *testing.T) {
	t.Parallel()
	sql := func(actor, text, reply string, kind Kind) Step {
		return Step{Actor: actor, Text: text, Reply: reply, Kind: kind, Store: "mysql"}
	}
	redis := func(actor, text, reply string) Step {
		return Step{Actor: actor, Text: text, Reply: reply, Kind: Executes, Store: "redis"}
	}
	const update = "UPDATE good_stock SET stock = 9\n\t\tWHERE goods_id = 5000007"
	got := typedBy(
		sql("A", "START TRANSACTION", "", Passes), sql("A", "PING", "OK", Passes),
		sql("A", "SELECT stock FROM good_stock WHERE goods_id = 5000007", "1 row: 10", Executes),
		redis("B", "EVALSHA {Takes the lock} KEYS lock:{5000007} ARGV x 9", "1"),
		redis("B", "MULTI\nSET stock:{5000007} 8\nEXEC", "OK; QUEUED; [OK]"),
		Step{Kind: Strikes, Text: "the leases of all locks end"},
		Step{Kind: Strikes, Store: "redis", Text: "DEL lock:{5000007}"},
		redis("B", "EVALSHA_RO {6fbe84d1} KEYS a b ARGV", "1"), redis("B", "EVAL {6fbe84d1} KEYS ARGV x", "2"),
		sql("B", update, "waits", Waits), sql("A", "COMMIT", "OK, 0 rows", Executes), sql("B", update, "OK, 1 row", Resumes),
		Step{Actor: "B", Kind: Answers, Text: "sold"}, Step{Kind: Answers, Text: "the store has 9 of 10 units"},
	)
	want := `-- example, lease-ends: lost update
-- 10 units; A buys 1, B buys 2
-- Prepare, with the addresses that loadtest up prints:
-- curl -X PUT ADMIN/admin/stock/1 -H 'Content-Type: application/json' -d '{"stock":10}'
-- T1, T2 and so on are sessions: in each, mysql for SQL, and redis-cli for commands of Redis.
-- Leave out the lines that begin with -- in redis-cli, which has no comments.
-- T1 is A
START TRANSACTION; -- T1
SELECT stock FROM good_stock WHERE goods_id = 1; -- T1. Returns 10
-- T2 is B
-- SHA stands for what SCRIPT LOAD prints when it is given the text of the script.
-- T2 on redis, the script {Takes the lock}. Returns 1
EVALSHA SHA 1 lock:{1} x 9
-- T2 on redis. Returns OK
MULTI
-- T2 on redis. Returns QUEUED
SET stock:{1} 8
-- T2 on redis. Returns [OK]
EXEC
-- the leases of all locks end
-- T3 on redis
DEL lock:{1}
-- T2 on redis, the script {6fbe84d1}. Returns 1
EVALSHA_RO SHA 2 a b
-- T2 on redis, the script {6fbe84d1}. Returns 2
EVALSHA SHA 0 x
UPDATE good_stock SET stock = 9 WHERE goods_id = 1; -- T2. BLOCKS
COMMIT; -- T1
-- T2 goes on. Changes 1 row
-- B is told: sold
-- the store has 9 of 10 units
-- item 1: units sold but still in stock: 2
`
	if got = onceSpaced(got); got != want {
		t.Errorf("the text is\n%s\nwant\n%s", got, want)
	}
}

// onceSpaced replaces the spaces before a comment by one.
func onceSpaced(text string) string {
	for strings.Contains(text, "  -- ") {
		text = strings.ReplaceAll(text, "  -- ", " -- ")
	}
	return text
}

func TestATextForTerminalsSaysWhereASessionEnds(t *testing.T) {
	t.Parallel()
	strikes := func(name string) Step {
		return Step{Actor: "A", Kind: Strikes, Text: "a replica dies", Fault: name}
	}
	statement := Step{Actor: "A", Text: "UPDATE x SET y = 1", Reply: ConnectionEnded, Kind: Executes, Store: "mysql"}
	for name, want := range map[string]string{
		LostRequest: "-- T1: end the session, before the next statement is executed\n" +
			"-- T1: not executed: UPDATE x SET y = 1\n",
		LostReply:      "-- T1: the reply to the next statement is lost: end the session after it\nUPDATE x SET y = 1;",
		"replica-dies": "-- A: a replica dies; end its sessions\n",
	} {
		steps := []Step{strikes(name), statement}
		if name == "replica-dies" {
			steps = steps[:1]
		}
		if got := typedBy(steps...); !strings.Contains(got, want) {
			t.Errorf("%s: the text is\n%s\nwant %q in it", name, got, want)
		}
	}
}

func TestNothingIsShownAfterNobodyCanGoOn(t *testing.T) {
	t.Parallel()
	o := Execution{Steps: []Step{{Kind: Stuck, Text: "nobody can go on"}, {Actor: "A", Kind: Answers}}}
	if got := o.Readable().Steps; len(got) != 1 || got[0].Kind != Stuck {
		t.Errorf("the steps are %+v", got)
	}
}

func TestTheRequestsOfAScheduleComeFirst(t *testing.T) {
	t.Parallel()
	steps := []Step{{Actor: "A again"}, {}, {Actor: "B"}, {Actor: "restock"}, {Actor: "A"}, {Actor: "B"}}
	if got := strings.Join(Actors(steps), ", "); got != "A, B, A again, restock" {
		t.Errorf("the columns are %s", got)
	}
}

func TestATokenOfAnotherStoreIsReplayedThere(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Result{
		"loadtest explore --strategies a --replay one:A":               {Strategy: "a", Store: "mysql"},
		"loadtest explore --strategies a --store redis --replay one:A": {Strategy: "a", Store: "redis", OtherStore: true},
		"loadtest explore --requests 3 --strategies a --replay one:A":  {Strategy: "a", Store: "mysql", Requests: 3},
	} {
		if got := r.Replay("one:A"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
