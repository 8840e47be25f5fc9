package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/script"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/service"
)

// StartScripts starts lanes for scripts: for three sessions, and one that a fault starts. engine is MySQL, PostgreSQL,
// or the DSN of a PostgreSQL server of the user.
func StartScripts(ctx context.Context, lanes int, engine string) (*Explorer, error) {
	o := Options{Lanes: lanes, Requests: 3, Subject: &scripted{}}
	if engine != MySQL {
		o.Postgres = engine
	}
	return Start(ctx, nil, o)
}

// scripted is the script that a lane executes. It implements Subject.
type scripted struct {
	*Script
	*script.Interpreter
	direct   *script.Stores // of setup and check
	tables   []string       // that setup has made
	before   []string       // the tables that were there before
	open     []*script.Stores
	answered *answered
}

// answered is what the sessions of all lanes have told their clients.
type answered struct {
	sold atomic.Bool  // some session has succeeded
	last atomic.Value // the text of the last answer
}

// Script is a file with sessions.
type Script = script.Script

// LoadScript reads a script. requests is how many sessions buy if the script does not say.
func LoadScript(file string, text []byte, requests int) (*Script, error) {
	return script.Load(file, text, requests, scriptWords)
}

var scriptWords = script.Words{
	Faults: []string{LostRequest, LostReply, ReplicaDies, LeaseEnds, SentAgain, Promoted},
	Kinds: []string{
		trace.Right, trace.LostUpdate, trace.Oversold, trace.Undersold, trace.Leaked, trace.SoldTwice, trace.Deadlock,
		trace.OtherWrong,
	},
}

// ExploreScript executes every schedule of a script within the bounds. If ctx ends, it returns what it has.
func (x *Explorer) ExploreScript(ctx context.Context, s *Script, bounds trace.Bounds) (trace.Result, error) {
	answers, err := x.use(ctx, s)
	defer x.leave()
	if err != nil {
		return trace.Result{Strategy: s.File, Store: x.engine(), Own: true}, err
	}
	all := cells{}
	for fault := range s.Expect {
		if fault == "" || bounds.Faults > 0 {
			all[fault] = newCell("", fault)
		}
	}
	r, err := x.search(ctx, x.scriptChoice(s), []workload{scriptWorkload(s)}, bounds, ofScript(s.Expect), all)
	r.Requests = len(s.Sessions)
	stuck := slices.Contains(slices.Collect(maps.Values(s.Expect)), trace.Deadlock)
	if err == nil && r.Held() && !answers.sold.Load() && !stuck {
		return trace.Result{}, fmt.Errorf("%s: no session has succeeded in any of %d schedules: %v",
			s.File, r.Tally.Schedules, answers.last.Load())
	}
	return r, err
}

// ReplayScript executes the schedule of a token.
func (x *Explorer) ReplayScript(ctx context.Context, s *Script, token string) (trace.Execution, error) {
	w := scriptWorkload(s)
	labels, found := strings.CutPrefix(token, w.name+":")
	if !found {
		return trace.Execution{}, fmt.Errorf("%q is no token of a script: they begin with %s", token, w.name+":")
	}
	_, err := x.use(ctx, s)
	defer x.leave()
	if err != nil {
		return trace.Execution{}, err
	}
	choice := x.scriptChoice(s)
	return Replay(ctx, x.systems(choice, w, w.strikes(choice.Strategy))[0], labels)
}

// scriptWorkload has one request for each session.
func scriptWorkload(s *Script) workload {
	w := workload{name: "script", title: s.Title, stock: []int64{s.Stock}, faults: s.Faults}
	for n := range s.Sessions {
		w.requests = append(w.requests, buy(int64(n+1)))
	}
	return w
}

func (x *Explorer) scriptChoice(s *Script) load.Choice {
	return load.Own(s.File, x.engine(), s.Keyed(), false)
}

// engine names what executes the SQL of scripts.
func (x *Explorer) engine() string {
	if x.lanes[0].postgres != "" {
		return PostgreSQL
	}
	return MySQL
}

// use has all lanes execute a script from now on.
func (x *Explorer) use(ctx context.Context, s *Script) (*answered, error) {
	all := &answered{}
	all.last.Store("none has answered")
	interpreter, err := s.Start()
	if err != nil {
		return nil, err
	}
	for _, l := range x.lanes {
		subject := &scripted{Script: s, Interpreter: interpreter, answered: all}
		l.subject = subject
		if l.postgres != "" {
			if err := l.clearPostgres(ctx); err != nil {
				return nil, err
			}
		}
		if subject.before, err = l.tables(ctx); err != nil {
			return nil, err
		}
		if subject.direct, err = l.stores(l.replicas[l.late()], ""); err != nil {
			return nil, err
		}
		subject.direct.Once = map[string]bool{}
		l.hidden = nil
	}
	return all, nil
}

// leave removes what a script has made.
func (x *Explorer) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, l := range x.lanes {
		subject, _ := l.subject.(*scripted)
		if subject == nil || subject.Interpreter == nil {
			continue
		}
		l.subject = &scripted{}
		subject.Interpreter.Close()
		if subject.direct == nil {
			continue
		}
		subject.hangUp()
		_ = subject.direct.Close() // of connections only
		if l.postgres != "" {
			continue
		}
		for _, table := range subject.tables {
			_ = l.alone(ctx, "DROP TABLE IF EXISTS `"+table+"`") // if it fails, the next script says so
		}
	}
}

// stores returns stores for the session of a replica, which are not connected yet.
func (l *lane) stores(r *replica, isolation string) (*script.Stores, error) {
	if l.postgres != "" {
		return script.OnPostgres(l.db, r, isolation, r.at.Redis[0]), nil
	}
	return script.OnMySQL(r.at.MySQLDSN, isolation, r.at.Redis[0])
}

// tables lists the tables of the database.
func (l *lane) tables(ctx context.Context) (names []string, err error) {
	query := "SHOW TABLES"
	if l.postgres != "" {
		query = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
	}
	return names, l.db.SelectContext(ctx, &names, query)
}

// alone executes a statement that ignores foreign keys.
func (l *lane) alone(ctx context.Context, statement string) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, text := range []string{"SET foreign_key_checks = 0", statement, "SET foreign_key_checks = 1"} {
		_, err := conn.ExecContext(ctx, text)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *scripted) hangUp() {
	for _, stores := range s.open {
		_ = stores.Close() // of connections only
	}
	s.open = nil
}

// running has the stock where scripts have it. There are no replicas.
func (s *scripted) running(l *lane) *service.Running {
	d := service.Default(nil)
	if l.postgres != "" {
		d.Stock.SQL.Set = "INSERT INTO good_stock (goods_id, stock) VALUES ({item}, {count})"
	}
	return &service.Running{Description: d, DB: l.db.DB, Redis: l.keys}
}

// setStock makes the stores what they are before each schedule.
func (s *scripted) setStock(ctx context.Context, l *lane, stock map[int64]int64) error {
	s.hangUp()
	if err := l.empty(ctx, s.tables); err != nil {
		return err
	}
	if err := l.keys.FlushDB(ctx).Err(); err != nil {
		return err
	}
	if err := s.running(l).SetStock(ctx, stock); err != nil || !s.Setup {
		return err
	}
	made := len(s.direct.Once)
	result, err := s.Run(ctx, "setup", script.Env{Item: slices.Collect(maps.Keys(stock))[0], Stores: s.direct})
	switch {
	case err != nil:
		return err
	case result.Answer != script.Done:
		return fmt.Errorf("%s: setup was refused: %s", s.File, result.Why)
	case len(s.direct.Once) > made:
		all, err := l.tables(ctx)
		s.tables = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(s.before, name) })
		return err
	}
	return nil
}

// empty empties tables. On PostgreSQL, rows then stand in the same places in every schedule: pages of an index tell it
// which SERIALIZABLE transactions depend on each other.
func (l *lane) empty(ctx context.Context, tables []string) error {
	if l.postgres != "" {
		all := strings.Join(append([]string{"good_stock"}, tables...), ", ")
		_, err := l.db.ExecContext(ctx, "TRUNCATE "+all+" RESTART IDENTITY CASCADE")
		return err
	}
	for _, table := range tables {
		if err := l.alone(ctx, "DELETE FROM `"+table+"`"); err != nil {
			return err
		}
	}
	return nil
}

// client executes a session.
func (s *scripted) client(l *lane, at int, op history.Op) client {
	session, who := s.Sessions[op.Client], string(rune('A'+op.Client))
	if session == history.Restock {
		op.Kind = history.Restock
	}
	return func(ctx context.Context, tell func(string)) (answers, error) {
		stores, err := l.stores(l.replicas[at], s.Isolation)
		if err != nil {
			return answers{}, err
		}
		l.mu.Lock()
		s.open = append(s.open, stores)
		l.mu.Unlock()
		env := script.Env{
			Item: op.GoodsID, Stores: stores, Say: tell,
			Args: map[string]any{"count": op.Count, "who": who, "request": op.Name},
		}
		op.SentNS = monotonic.Now()
		result, err := s.Run(ctx, session, env)
		stores.RollBack(ctx)
		op.ReceivedNS = monotonic.Now()
		op.Outcome, op.Error = outcomes[result.Answer], result.Why
		if op.Count = max(result.Units, op.Count); result.Answer == script.Done {
			op.Count = result.Units
			s.answered.sold.Store(true)
		}
		if ctx.Err() == nil { // its client is there
			s.answered.last.Store(inWords(op.Outcome, op.Error))
			tell(inWords(op.Outcome, op.Error))
		}
		return answers{ops: []history.Op{op}}, err
	}
}

var outcomes = map[script.Answer]history.Outcome{
	script.Done: history.Sold, script.SoldOut: history.SoldOut, script.Refused: history.Busy,
	script.Unknown: history.Unknown,
}

// check has the script judge what a schedule has left.
func (s *scripted) check(ctx context.Context, items []int64, told []answers) (damage string, err error) {
	var sold, unknown int64 // units
	var refused int64       // sessions
	for _, a := range told {
		for _, op := range a.ops {
			switch op.Outcome {
			case history.Sold:
				sold += op.Count
			case history.Unknown:
				unknown += op.Count
			default:
				refused++
			}
		}
	}
	args := map[string]any{"sold": sold, "unknown": unknown, "refused": refused}
	result, err := s.Run(ctx, "check", script.Env{Item: items[0], Stores: s.direct, Args: args})
	switch {
	case err != nil:
		return "", err
	case result.Answer != script.Done:
		return "", fmt.Errorf("%s: check was refused: %s", s.File, result.Why)
	case result.False:
		return trace.OtherWrong, nil
	}
	return cmp.Or(result.Text, trace.Right), nil
}
