package explore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// The queries that tell what executes statements without their texts: functions of one's own, with a parenthesis after
// the name, and tables with triggers or rules. If there is a definition, such as that of a view, it does so only if the
// definition names such a thing.
const (
	hiddenInMySQL = `SELECT LOWER(CONCAT(ROUTINE_NAME, '(')) AS name, CONCAT('the function ', ROUTINE_NAME) AS what,
			'' AS definition
			FROM information_schema.ROUTINES WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA NOT IN ('sys', 'mysql')
		UNION SELECT LOWER(EVENT_OBJECT_TABLE), CONCAT('a trigger of ', EVENT_OBJECT_TABLE), ''
			FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA <> 'sys'
		UNION SELECT LOWER(TABLE_NAME), CONCAT('the view ', TABLE_NAME), VIEW_DEFINITION
			FROM information_schema.VIEWS WHERE TABLE_SCHEMA <> 'sys'`
	hiddenInPostgres = `SELECT lower(proname || '(') AS name, 'the function ' || proname AS what, '' AS definition
			FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace JOIN pg_language l ON l.oid = prolang
			WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND lanname NOT IN ('internal', 'c')
		UNION SELECT lower(relname), 'a trigger of ' || relname, ''
			FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal
		UNION SELECT lower(tablename), 'a rule of ' || tablename, '' FROM pg_rules WHERE schemaname <> 'pg_catalog'
		UNION SELECT lower(viewname), 'the view ' || viewname, definition
			FROM pg_views WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
		UNION SELECT lower(relname), 'a default of ' || relname, pg_get_expr(adbin, adrelid)
			FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid
		UNION SELECT lower(relname), 'a constraint of ' || relname, pg_get_constraintdef(k.oid)
			FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid WHERE contype = 'c'`
)

// learn asks the database of a Subject, once, what executes statements without their texts.
func (l *lane) learn(ctx context.Context) error {
	if l.subject == nil || l.hidden != nil {
		return nil
	}
	query, store := hiddenInMySQL, "mysql"
	if l.postgres != "" {
		query, store = hiddenInPostgres, "postgres"
	}
	var found []struct{ Name, What, Definition string }
	if err := l.db.SelectContext(ctx, &found, query); err != nil {
		return fmt.Errorf("ask for functions and triggers: %w", err)
	}
	l.hidden = map[string]string{}
	for before := -1; before < len(l.hidden); { // a view may read another one
		before = len(l.hidden)
		for _, f := range found {
			e := wire.Exchange{Store: store, Text: f.Definition}
			if f.Definition == "" || l.hidden[f.Name] == "" && e.Names(l.hidden) != "" {
				l.hidden[f.Name] = f.What + " executes statements of its own"
			}
		}
	}
	return nil
}

// divide notes whether an exchange of the schedule is not one step on its server: others could come between its parts,
// which no schedule shows. The strategies send transactions in one message, which are taken for one step. s.mu is held.
func (s *schedule) divide(e *wire.Exchange) {
	why := cmp.Or(e.Parts, e.Names(s.lane.hidden))
	if why == "" && e.Several && s.lane.subject != nil {
		why = "it has several statements or commands"
	}
	if why != "" && s.divided == "" {
		s.divided = fmt.Sprintf("%s is not one step on the server: %s. What others do meanwhile is not explored", e.Text, why)
	}
}

// unjudged returns what a schedule has led to, as far as that can be said.
func (s *schedule) unjudged(o trace.Execution) trace.Execution {
	switch {
	case s.lane.goesOn != "":
		o.Kind = trace.Unjudged
		o.Evidence = []string{"the service goes on after its answer, and no schedule waits for that: " + s.lane.goesOn}
	case s.divided != "" && o.Kind == trace.Right:
		o.Kind, o.Evidence = trace.Unjudged, []string{s.divided}
	}
	return o
}

// listenTime is how long a service is watched after an answer.
const listenTime = 400 * time.Millisecond

// listen returns what a service of the user does later after its answer than a schedule waits for it; empty: nothing.
// What does not happen on several replicas is a job that is repeated now and then.
func (x *session) listen(ctx context.Context) (goesOn string, err error) {
	times := map[string]int{}
	for at := range x.lane.replicas {
		items := x.newItems()
		err := x.setStock(ctx, items)
		if err == nil {
			_, err = x.client(items, at, at, buy(1))(ctx, quietly)
		}
		if err != nil {
			return "", err
		}
		time.Sleep(executing)
		x.lane.hear(map[string]bool{})
		time.Sleep(listenTime)
		heard := x.lane.hear(nil)
		for _, shape := range slices.Sorted(maps.Keys(heard)) { // COMMIT comes before the others
			if times[shape]++; times[shape] > 1 {
				goesOn = shape
			}
		}
	}
	return goesOn, ctx.Err()
}

// hear has the lane note the shapes of what its replicas do without a schedule. It returns what was noted before.
func (l *lane) hear(shapes map[string]bool) (heard map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard, l.heard = l.heard, shapes
	return heard
}
