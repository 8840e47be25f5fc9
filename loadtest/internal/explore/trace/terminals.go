package trace

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Terminals writes a schedule as a person can type it, in the manner of Hermitage: a line for each statement, the
// session that executes it, and what it shows.
func (r Result) Terminals(c Cell, s Schedule) string {
	o := s.Execution.Readable()
	t := terminals{sessions: map[string]string{}}
	t.sayf("%s, %s: %s", r.Strategy, c.Name(), o.Kind)
	if at := slices.IndexFunc(r.Workloads, func(w Workload) bool { return w.Name == o.Workload }); at >= 0 {
		t.sayf("%s", r.Workloads[at].Title)
	}
	for _, line := range r.prepare(o) {
		t.sayf("%s", line)
	}
	for i, step := range o.Steps {
		t.step(step, o.Steps[i+1:])
	}
	for _, found := range o.Evidence {
		if o.Kind != Deadlock { // the last step says the same
			t.sayf("%s", found)
		}
	}
	return t.String()
}

// prepare says what must be there before the first step.
func (r Result) prepare(o Execution) (lines []string) {
	var units, calls []string
	for _, item := range slices.Sorted(maps.Keys(o.Stock)) {
		units = append(units, fmt.Sprintf("%d of item %d", o.Stock[item], item))
		calls = append(calls, fmt.Sprintf("curl -X PUT ADMIN/admin/stock/%d -H 'Content-Type: application/json' "+
			`-d '{"stock":%d}'`, item, o.Stock[item]))
	}
	switch {
	case len(units) == 0:
	case !r.Own:
		lines = append(lines, "Prepare, with the addresses that loadtest up prints:")
		lines = append(lines, calls...)
	case strings.HasSuffix(r.Strategy, scriptEnding):
		lines = append(lines, "Prepare what setup() makes, and in good_stock: "+strings.Join(units, ", "))
	default:
		lines = append(lines, "Prepare the tables of your service, and in stock: "+strings.Join(units, ", "))
	}
	client := "mysql"
	if r.Store == Postgres {
		client = "psql"
	}
	return append(lines,
		"T1, T2 and so on are sessions: in each, "+client+" for SQL, and redis-cli for commands of Redis.",
		"Leave out the lines that begin with -- in redis-cli, which has no comments.")
}

// terminals is a text that is being written.
type terminals struct {
	strings.Builder

	sessions map[string]string // by actor
	skips    string            // the actor whose next statement is not executed
	scripts  bool              // it says what SHA stands for
}

func (t *terminals) sayf(format string, args ...any) {
	fmt.Fprintln(t, "-- "+strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// session names the session of a step.
func (t *terminals) session(step Step) string {
	if t.sessions[step.Actor] == "" {
		t.sessions[step.Actor] = fmt.Sprintf("T%d", len(t.sessions)+1)
		if step.Actor != "" {
			t.sayf("%s is %s", t.sessions[step.Actor], step.Actor)
		}
	}
	name := t.sessions[step.Actor]
	if step.Conn > 0 {
		name += string(rune('a' + step.Conn)) // the first one has no letter
	}
	return name
}

// step writes one step. rest follows it.
func (t *terminals) step(step Step, rest []Step) {
	switch {
	case step.Store == "" && step.Kind == Strikes && step.Actor != "":
		t.strike(step, rest)
	case step.Kind == Answers && step.Actor != "":
		t.sayf("%s is told: %s", step.Actor, step.Text)
	case step.Kind == Resumes:
		t.sayf("%s goes on. %s", t.session(step), shows(step.Text, step.Reply))
	case step.Store == "":
		t.sayf("%s", step.Text)
	case !step.Shown():
	case t.skips != "" && t.skips == step.Actor:
		t.sayf("%s: not executed: %s", t.session(step), typed(step.Text))
		t.skips = ""
	default:
		t.statement(step)
	}
}

// strike says what to do in the session that a fault strikes.
func (t *terminals) strike(step Step, rest []Step) {
	next := slices.IndexFunc(rest, func(s Step) bool { return s.Actor == step.Actor && s.Store != "" })
	switch {
	case step.Fault == LostReply && next >= 0:
		t.sayf("%s: the reply to the next statement is lost: end the session after it", t.session(rest[next]))
	case step.Fault == LostRequest && next >= 0:
		t.sayf("%s: end the session, before the next statement is executed", t.session(rest[next]))
		t.skips = step.Actor
	default:
		t.sayf("%s: %s; end its sessions", step.Actor, step.Text)
	}
}

// statement writes what is typed. A pipeline has several lines, and a reply for each.
func (t *terminals) statement(step Step) {
	session := t.session(step)
	lines := []string{step.Text}
	isSQL := step.Store == "mysql" || step.Store == Postgres
	if !isSQL {
		lines = strings.Split(step.Text, "\n")
	}
	replies := strings.Split(step.Reply, "; ")
	for i, line := range lines {
		reply := ""
		switch {
		case len(lines) == 1:
			reply = step.Reply
		case len(replies) == len(lines):
			reply = replies[i]
		case i == len(lines)-1:
			reply = step.Reply
		}
		comment := shows(line, reply)
		if step.Kind == Waits {
			comment = "BLOCKS"
		}
		if comment != "" {
			comment = ". " + comment
		}
		if isSQL {
			fmt.Fprintf(t, "%-60s -- %s\n", typed(line)+";", session+comment)
			continue
		}
		t.sayf("%s on %s%s%s", session, step.Store, t.script(line), comment)
		fmt.Fprintln(t, typed(line))
	}
}

var luaScript = regexp.MustCompile(`^EVAL(?:SHA)?(_RO)? \{(.*)\} KEYS(| .*?)(?: ARGV(.*))?$`)

// script says which Lua script a command executes: the trace has no texts of them, only the first comment or, without
// one, the beginning of the hash.
func (t *terminals) script(line string) string {
	m := luaScript.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	if !t.scripts {
		t.sayf("SHA stands for what SCRIPT LOAD prints when it is given the text of the script.")
		t.scripts = true
	}
	return ", the script {" + m[2] + "}"
}

// typed is a statement as it is typed, with SHA in place of the hash of a Lua script.
func typed(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if m := luaScript.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("EVALSHA%s SHA %d%s%s", m[1], len(strings.Fields(m[3])), m[3], m[4])
	}
	return text
}

func ofTransaction(text string) bool {
	text = strings.ToUpper(text)
	word, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{"BEGIN", "START", "COMMIT", "ROLLBACK"}, word) ||
		word == "SET" && (strings.Contains(text, "TRANSACTION") || strings.Contains(text, "AUTOCOMMIT"))
}

var rows = regexp.MustCompile(`^(\d+) rows?(?:: (.*))?$`)

// shows says what a session shows after a statement.
func shows(text, reply string) string {
	switch m := rows.FindStringSubmatch(reply); {
	case strings.HasPrefix(reply, "OK") && strings.Contains(reply, "; "): // of several statements in one message
		return "Returns " + reply
	case reply == "" || ofTransaction(text) && strings.HasPrefix(reply, "OK"):
		return ""
	case strings.HasPrefix(reply, "error"):
		return "FAILS: " + reply
	case m != nil && m[2] != "":
		return "Returns " + m[2]
	case m != nil && m[1] == "0":
		return "Returns no row"
	case m != nil:
		return "Returns " + reply
	case strings.HasPrefix(reply, "OK, 0 rows"):
		return "Changes no row"
	case strings.HasPrefix(reply, "OK, "):
		return "Changes " + strings.TrimPrefix(reply, "OK, ")
	case reply == ConnectionEnded:
		return "The connection has ended"
	}
	return "Returns " + reply
}

// Readable returns the outcome with items that are numbered from 1, and without what followed when nobody could go on.
func (o Execution) Readable() Execution {
	numbers := map[int64]int64{}
	for i, item := range slices.Sorted(maps.Keys(o.Stock)) {
		numbers[item] = int64(i + 1)
	}
	renumber := func(text string) string {
		for item, number := range numbers {
			text = regexp.MustCompile(fmt.Sprintf(`\b%d\b`, item)).ReplaceAllString(text, fmt.Sprint(number))
		}
		return text
	}
	stock := map[int64]int64{}
	for item, units := range o.Stock {
		stock[numbers[item]] = units
	}
	o.Stock = stock
	o.Steps, o.Evidence = slices.Clone(o.Steps), slices.Clone(o.Evidence)
	if end := slices.IndexFunc(o.Steps, func(s Step) bool { return s.Kind == Stuck }); end >= 0 {
		o.Steps = o.Steps[:end+1]
	}
	for i := range o.Steps {
		o.Steps[i].Text, o.Steps[i].Reply = renumber(o.Steps[i].Text), renumber(o.Steps[i].Reply)
	}
	for i := range o.Evidence {
		o.Evidence[i] = renumber(o.Evidence[i])
	}
	return o
}
