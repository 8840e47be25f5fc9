package explore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Script is a file in Starlark whose functions are the requests. Each of their calls of sql, rows, redis, lua and http is
// a step.
type Script struct {
	file      string
	sessions  []*starlark.Function
	setup     *starlark.Function // nil: the stock of the items in good_stock is set
	check     *starlark.Function // nil: the judge compares good_stock with what was sold
	schema    string             // SQL that makes tables
	isolation string
	units     []int64 // of each item
	counts    []int64 // units that each session buys
	faults    []string
	expect    string // the kind of outcome that must be found; Right: only that; empty: nothing is expected
}

// CheckFails is the kind of an Outcome of which the check of a script says that it is wrong.
const CheckFails = "check fails"

// stepLimit bounds how many instructions of Starlark a function executes.
const stepLimit = 500_000

// LoadScript reads a script. Errors in it begin with its name, the line and the column.
func LoadScript(file string, text []byte) (*Script, error) {
	thread := &starlark.Thread{Name: file}
	thread.SetMaxExecutionSteps(stepLimit)
	globals, err := starlark.ExecFileOptions(&syntax.FileOptions{While: true, TopLevelControl: true}, thread, file, text,
		builtins)
	if err != nil {
		return nil, positioned(file, err)
	}
	s := &Script{file: file, units: []int64{10}, counts: []int64{1, 2}}
	known := map[string]func(starlark.Value) error{
		"setup": s.function(&s.setup, "item", "item2"), "check": s.function(&s.check, "item", "item2", "sold", "unknown"),
		"schema": s.text(&s.schema), "isolation": s.text(&s.isolation), "expect": s.text(&s.expect),
		"stock": numbers(&s.units), "counts": numbers(&s.counts), "faults": texts(&s.faults), "sessions": s.functions,
	}
	if globals["sessions"] == nil {
		globals["sessions"] = starlark.NewList([]starlark.Value{globals["buy"], globals["buy"]})
		if globals["buy"] == nil {
			return nil, fmt.Errorf("%s: there is no function buy, and no list sessions with other functions", file)
		}
	}
	for name, set := range known {
		if value := globals[name]; value != nil {
			if err := set(value); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, name, err)
			}
		}
	}
	return s, s.consistent()
}

func (s *Script) consistent() error {
	names := append(faultNames(), "")
	kinds := []string{
		"", Right, LostUpdate, Oversold, Undersold, Leaked, SoldTwice, OtherWrong, Deadlock, CheckFails,
	}
	unknown := slices.IndexFunc(s.faults, func(name string) bool { return !slices.Contains(names, name) })
	switch {
	case len(s.sessions) < 2 || len(s.sessions) > 3:
		return fmt.Errorf("%s: there are %d sessions: 2 or 3 can be explored", s.file, len(s.sessions))
	case len(s.counts) < len(s.sessions):
		return fmt.Errorf("%s: counts has %d numbers for %d sessions", s.file, len(s.counts), len(s.sessions))
	case len(s.units) < 1 || len(s.units) > 2:
		return fmt.Errorf("%s: stock has %d numbers: it must be that of one item or of two", s.file, len(s.units))
	case unknown >= 0:
		return fmt.Errorf("%s: faults: there is no %q, only %s", s.file, s.faults[unknown], strings.Join(scriptFaults, ", "))
	case !slices.Contains(kinds, s.expect):
		return fmt.Errorf("%s: expect is %q, and must be one of%s", s.file, s.expect, strings.Join(kinds, ", "))
	}
	return nil
}

// scriptFaults are the faults that can strike a script: the others are about requests to a service.
var scriptFaults = []string{LostRequest, LostReply, ReplicaDies, LeaseEnds, KeyGone, Promoted}

// Sessions is the number of sessions.
func (s *Script) Sessions() int { return len(s.sessions) }

func (s *Script) text(to *string) func(starlark.Value) error {
	return func(v starlark.Value) error {
		text, ok := starlark.AsString(v)
		if *to = text; !ok {
			return fmt.Errorf("it is %s, and must be a string", v.Type())
		}
		return nil
	}
}

func numbers(to *[]int64) func(starlark.Value) error {
	return func(v starlark.Value) error {
		*to = nil
		return each(v, func(v starlark.Value) error {
			n, err := starlark.AsInt32(v)
			if err != nil || n < 0 {
				return fmt.Errorf("%v is no number of units", v)
			}
			*to = append(*to, int64(n))
			return nil
		})
	}
}

func texts(to *[]string) func(starlark.Value) error {
	return func(v starlark.Value) error {
		return each(v, func(v starlark.Value) error {
			text, ok := starlark.AsString(v)
			if *to = append(*to, text); !ok {
				return fmt.Errorf("%v is no string", v)
			}
			return nil
		})
	}
}

// each calls set with each element of a list, or with what is no list.
func each(v starlark.Value, set func(starlark.Value) error) error {
	list, ok := v.(starlark.Iterable)
	if !ok {
		return set(v)
	}
	for element := range starlark.Elements(list) {
		if err := set(element); err != nil {
			return err
		}
	}
	return nil
}

func (s *Script) functions(v starlark.Value) error {
	return each(v, func(v starlark.Value) error {
		var f *starlark.Function
		if err := s.function(&f, "item", "item2", "count", "who")(v); err != nil {
			return err
		}
		s.sessions = append(s.sessions, f)
		return nil
	})
}

// function takes a function whose parameters have some of these names.
func (s *Script) function(to **starlark.Function, names ...string) func(starlark.Value) error {
	return func(v starlark.Value) error {
		f, ok := v.(*starlark.Function)
		if !ok {
			return fmt.Errorf("it is %s, and must be a function", v.Type())
		}
		for i := range f.NumParams() {
			if name, at := f.Param(i); !slices.Contains(names, name) {
				return fmt.Errorf("%v: %s has the parameter %s, and can have %s", at, f.Name(), name, strings.Join(names, ", "))
			}
		}
		*to = f
		return nil
	}
}

// positioned begins an error with the place in the script where it happened.
func positioned(file string, err error) error {
	var failed *starlark.EvalError
	if !errors.As(err, &failed) {
		return err // those of the parser and the resolver begin with the position
	}
	for _, frame := range slices.Backward(failed.CallStack) {
		if frame.Pos.Line > 0 {
			return fmt.Errorf("%v: %w", frame.Pos, failed.Unwrap())
		}
	}
	return fmt.Errorf("%s: %w", file, err)
}

// Choice returns what takes the place of a strategy.
func (s *Script) Choice() scenario.Choice {
	no := false
	return scenario.Choice{Store: oracle.MySQL, Strategy: scenario.Strategy{
		Name: s.file, Stores: []string{oracle.MySQL}, Claim: scenario.Claim{TwoReplicas: verify.ClaimCorrect},
		ReportsRemaining: &no,
	}}
}

func (s *Script) workloads(int) []workload {
	w := workload{name: "script", title: s.file, stock: s.units, faults: s.faults}
	for i := range s.sessions {
		w.requests = append(w.requests, buy(s.counts[i]))
	}
	return []workload{w}
}

func (s *Script) prepare(ctx context.Context, l *lane) error {
	if s.schema == "" {
		return nil
	}
	if _, err := l.db.ExecContext(ctx, s.schema); err != nil {
		return fmt.Errorf("%s: schema: %w", s.file, err)
	}
	return nil
}

// start opens the connections of a session. There is no process to start.
func (s *Script) start(
	_ context.Context, _ *topology.Topology, r *replica, _ string, at topology.Addresses,
) (*topology.Replica, error) {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams, config.ClientFoundRows, config.MultiStatements = true, false, true
	if s.isolation != "" {
		level := strings.ReplaceAll(strings.ToUpper(s.isolation), " ", "-")
		config.Params = map[string]string{"tx_isolation": "'" + level + "'"}
		if !r.lane.isMariaDB() {
			config.Params = map[string]string{"transaction_isolation": "'" + level + "'"}
		}
	}
	if r.db, err = sql.Open("mysql", config.FormatDSN()); err != nil {
		return nil, err
	}
	r.db.SetMaxOpenConns(1)
	r.keys = redis.NewClient(&redis.Options{
		Addr: at.Redis[0], MaxRetries: -1, PoolSize: 1, DisableIdentity: true, ReadTimeout: clientTimeout,
	})
	return nil, nil
}

// setStock makes the items.
func (s *Script) setStock(ctx context.Context, l *lane, stock map[int64]int64) error {
	own := Service{SetStock: DefaultSetStock}
	if err := own.setStock(ctx, l, stock); err != nil || s.setup == nil {
		return err
	}
	items := make([]int64, 0, len(stock))
	for item := range stock {
		items = append(items, item)
	}
	slices.Sort(items)
	c, err := s.outside(ctx, l, items)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = s.call(c, s.setup, nil)
	return err
}

func (s *Script) stock(ctx context.Context, l *lane, items []int64) (map[int64]int64, error) {
	return Service{ReadStock: DefaultReadStock}.stock(ctx, l, items)
}

// outside returns the calls of a function that is none of the requests.
func (s *Script) outside(ctx context.Context, l *lane, items []int64) (*calls, error) {
	conn, err := l.db.Conn(ctx)
	return &calls{ctx: ctx, conn: conn, keys: l.keys, items: items}, err
}

// client returns that of the n-th session.
func (s *Script) client(l *lane, items []int64, n, at int, r request) client {
	session := s.sessions[n%len(s.sessions)]
	op := history.Op{
		Kind: history.Deduct, Name: fmt.Sprintf("%s-%c", requestPrefix(items[0]), 'A'+n), Client: n,
		GoodsID: items[0], Count: r.lines[0].Count, OmitsRemaining: true,
	}
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op.SentNS = monotonic.Now()
		err := s.run(ctx, l, at, session, items, &op)
		op.ReceivedNS = monotonic.Now()
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}

// run executes a session, and notes its outcome. An error is one of the script.
func (s *Script) run(
	ctx context.Context, l *lane, at int, session *starlark.Function, items []int64, op *history.Op,
) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	l.replicas[at].busy.Store(true)
	defer l.replicas[at].busy.Store(false)
	op.Outcome, op.Error = history.Unknown, "no connection"
	conn, err := l.replicas[at].db.Conn(ctx)
	if err != nil {
		return nil //nolint:nilerr // it is an outcome
	}
	c := &calls{ctx: ctx, conn: conn, keys: l.replicas[at].keys, items: items, lane: l, replica: at}
	defer c.close()
	who := op.Name[strings.LastIndexByte(op.Name, '-')+1:]
	_, err = s.call(c, session, starlark.StringDict{"count": starlark.MakeInt64(op.Count), "who": starlark.String(who)})
	c.rollBack()
	var no refusedError
	switch {
	case err == nil:
		op.Outcome, op.Error = history.Sold, ""
	case errors.As(err, &no):
		op.Outcome, op.Error = history.SoldOut, no.why
	case errors.Is(err, errLost) || ctx.Err() != nil:
		op.Error = "the connection is lost"
	case isConflict(err):
		op.Outcome, op.Error = history.Busy, "MySQL has rolled it back"
	default:
		return err
	}
	return nil
}

// call calls a function with those of its parameters that it has.
func (s *Script) call(c *calls, f *starlark.Function, values starlark.StringDict) (starlark.Value, error) {
	thread := &starlark.Thread{Name: f.Name()}
	thread.SetMaxExecutionSteps(stepLimit)
	thread.SetLocal(callsKey, c)
	defer context.AfterFunc(c.ctx, func() { thread.Cancel("the time is over") })()
	all := starlark.StringDict{"item": starlark.MakeInt64(c.items[0]), "item2": starlark.MakeInt64(c.items[len(c.items)-1])}
	for name, value := range values {
		all[name] = value
	}
	var arguments []starlark.Tuple
	for i := range f.NumParams() {
		name, _ := f.Param(i)
		arguments = append(arguments, starlark.Tuple{starlark.String(name), all[name]})
	}
	value, err := starlark.Call(thread, f, nil, arguments)
	if err != nil {
		return nil, positioned(s.file, err)
	}
	return value, nil
}

// judge has the check of the script judge a schedule. It returns false if the script has none.
func (s *Script) judge(
	ctx context.Context, l *lane, items []int64, told []answers,
) (kind string, evidence []string, judged bool, err error) {
	if s.check == nil {
		return "", nil, false, nil
	}
	units := map[history.Outcome]int64{}
	for _, a := range told {
		for _, op := range a.ops {
			units[op.Outcome] += op.Count
		}
	}
	c, err := s.outside(ctx, l, items)
	if err != nil {
		return "", nil, true, err
	}
	defer c.close()
	value, err := s.call(c, s.check, starlark.StringDict{
		"sold": starlark.MakeInt64(units[history.Sold]), "unknown": starlark.MakeInt64(units[history.Unknown]),
	})
	if err != nil || value == starlark.True {
		return Right, nil, true, err
	}
	text, ok := starlark.AsString(value)
	if !ok {
		return "", nil, true, fmt.Errorf("%s: check returned %v: it must return True, or a string that says what is wrong",
			s.file, value)
	}
	return CheckFails, []string{text}, true, nil
}
