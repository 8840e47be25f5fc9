package explore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// A schedule is judged only if each of its steps is one step on the server, too. Others could come between the parts of
// a step, which no schedule shows.

// hidden are the queries that tell what executes statements without their texts: functions of one's own, with a
// parenthesis after the name, and tables with triggers.
var hidden = map[string]string{
	MySQL: `SELECT LOWER(CONCAT(ROUTINE_NAME, '(')) AS name, CONCAT('the function ', ROUTINE_NAME) AS what
			FROM information_schema.ROUTINES WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA NOT IN ('sys', 'mysql')
		UNION SELECT LOWER(EVENT_OBJECT_TABLE), CONCAT('a trigger of ', EVENT_OBJECT_TABLE)
			FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA <> 'sys'`,
	PostgreSQL: `SELECT lower(proname || '(') AS name, 'the function ' || proname AS what
			FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace JOIN pg_language l ON l.oid = prolang
			WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND lanname NOT IN ('internal', 'c')
		UNION SELECT lower(relname), 'a trigger of ' || relname
			FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal`,
}

// learn asks the database of a Subject, once, what executes statements without their texts.
func (l *lane) learn(ctx context.Context) error {
	if l.subject == nil || l.hidden != nil {
		return nil
	}
	engine := MySQL
	if l.postgres != "" {
		engine = PostgreSQL
	}
	var found []struct{ Name, What string }
	if err := l.db.SelectContext(ctx, &found, hidden[engine]); err != nil {
		return fmt.Errorf("ask for functions and triggers: %w", err)
	}
	l.hidden = map[string]string{}
	for _, f := range found {
		l.hidden[f.Name] = f.What + " executes statements of its own"
	}
	return nil
}

// parts returns why an exchange is not one step on its server; empty if it is. The strategies send whole transactions
// in one message, which are taken for one step.
func (l *lane) parts(e *wire.Exchange) string {
	switch {
	case e.Local:
		return ""
	case e.Parts != "":
		return e.Parts
	case e.Several && l.subject != nil:
		return "it has several statements or commands"
	}
	return e.Names(l.hidden)
}

// divide notes an exchange of the schedule that is not one step. s.mu is held.
func (s *schedule) divide(e *wire.Exchange) {
	if why := s.lane.parts(e); why != "" && s.divided == "" {
		s.divided = fmt.Sprintf("%s is not one step on the server: %s. What others do meanwhile is not explored", e.Text, why)
	}
}

// unjudged returns what a schedule has led to, as far as that can be said.
func (s *schedule) unjudged(o trace.Outcome) trace.Outcome {
	switch {
	case s.lane.goesOn != "":
		o.Kind = trace.Unjudged
		o.Evidence = []string{"the service goes on after its answer, and no schedule waits for that: " + s.lane.goesOn}
	case s.divided != "" && o.Kind == trace.Right:
		o.Kind, o.Evidence = trace.Unjudged, []string{s.divided}
	}
	return o
}

// listenTime is how long a service is watched after its answers.
const listenTime = 500 * time.Millisecond

// listen notes what a service of the user still does when its answers have been read, later than a schedule waits for
// it: what follows at least half of the answers. Jobs that are repeated now and then do not.
func (x *session) listen(ctx context.Context) error {
	const rounds = 2
	times := map[string]int{}
	for range rounds {
		heard, err := x.afterAnswers(ctx)
		if err != nil {
			return err
		}
		for _, shape := range slices.Sorted(maps.Keys(heard)) { // COMMIT comes before the others
			if times[shape] += len(heard[shape]); times[shape] >= rounds*len(x.lane.replicas)/2 {
				x.lane.goesOn = shape
			}
		}
	}
	return nil
}

// afterAnswers has each replica sell, and returns the shapes of what they do afterwards, and which of them do.
func (x *session) afterAnswers(ctx context.Context) (after map[string]map[int]bool, err error) {
	items, l := x.newItems(), x.lane
	if err := x.setStock(ctx, items); err != nil {
		return nil, err
	}
	answered := make([]time.Time, len(l.replicas))
	after = map[string]map[int]bool{}
	l.hear(func(replica int, e *wire.Exchange) {
		at, shape := answered[replica], e.Shape()
		if at.IsZero() || time.Since(at) < executing || len(e.Writes) == 0 || l.idle[shape] {
			return
		}
		if after[shape] == nil {
			after[shape] = map[int]bool{}
		}
		after[shape][replica] = true
	})
	group, sending := errgroup.WithContext(ctx)
	for at := range l.replicas {
		group.Go(func() error {
			_, err := x.client(items, at, at, buy(1))(sending, quietly)
			l.mu.Lock()
			defer l.mu.Unlock()
			answered[at] = time.Now()
			return err
		})
	}
	err = group.Wait()
	select {
	case <-time.After(listenTime):
	case <-ctx.Done():
	}
	l.hear(nil)
	return after, err
}

// hear has a function called with what replicas do while no schedule is executed. l.mu is held then.
func (l *lane) hear(call func(replica int, e *wire.Exchange)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = call
}
