package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"stock/internal/contract"
	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/verify"
)

// mostClients is how many clients a schedule may have.
const mostClients = 3

// CheckRace returns how many clients a race has, or what is wrong with its text.
func CheckRace(text string) (clients int, err error) {
	w, err := race(text)
	switch {
	case err != nil:
		return 0, err
	case len(w.race.Clients) == 0 || len(w.race.Clients) > mostClients:
		return 0, fmt.Errorf("%q has %d clients, and needs 1 to %d: write what each asks for after a slash, such as "+
			"'set 10a / sell 1a / sell 2a'", text, len(w.race.Clients), mostClients)
	}
	return len(w.race.Clients), nil
}

// racing is a race that is being carried out in a schedule.
type racing struct {
	*session
	items []int64
	on    contract.Service

	mu    sync.Mutex
	calls []contract.Call
	told  map[string]bool // names of the reservations whose ids clients know
}

// raceClient has a connection for each request: replicas lose theirs.
var raceClient = &http.Client{Timeout: clientTimeout, Transport: &http.Transport{DisableKeepAlives: true}}

// newRacing returns the race of a schedule.
func (x *session) newRacing(items []int64) *racing {
	r := &racing{session: x, items: items, told: map[string]bool{}}
	next := 0
	site := &contract.Site{
		HTTP: raceClient, KeyPrefix: requestPrefix(items[0]) + "-",
		Ways: map[string]contract.Way{"": {Strategy: x.strategy.Name, Store: x.store}},
		NewItem: func() int64 {
			if next++; next > len(items) {
				return x.lane.items()
			}
			return items[next-1]
		},
		LetPass: func(ctx context.Context, q contract.Request, ids []int64, prefix string) error { // never Prune
			return contract.Stores{DB: x.lane.db.DB, Redis: x.lane.keys}.Age(ctx, q.Time, ids, prefix)
		},
	}
	for _, replica := range x.lane.replicas {
		site.Replicas, site.Admins = append(site.Replicas, replica.URL), append(site.Admins, replica.AdminURL)
	}
	r.on = site.Service()
	return r
}

// ask sends a request to a replica. If ctx ends, nobody knows what becomes of it.
func (r *racing) ask(ctx context.Context, client string, at int, q contract.Request) (contract.Call, error) {
	q.Replica = at
	c := contract.Call{Request: q, Client: client, Sent: monotonic.Now()}
	answer, err := r.on.Ask(ctx, q)
	if c.Answer = answer; ctx.Err() != nil {
		c.Answer, err = contract.Unknown, nil
	}
	c.Replica, c.Received = 0, monotonic.Now()
	if q.Verb == contract.Hold && (strings.HasSuffix(answer, " remain") || strings.HasSuffix(answer, ", replayed")) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told[q.Name] = true
	}
	return c, err
}

// knows reports whether the client of a request knows the reservation that it is about.
func (r *racing) knows(q contract.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.Name == "" || q.Verb == contract.Hold || r.told[q.Name]
}

// errBusy says that nobody knows whether the service is stuck or slow.
var errBusy = errors.New("a request is refused as busy, or has no answer")

// askLate sends a request to the extra replica: again while it is refused as busy, and a read also while it has no
// answer.
func (r *racing) askLate(ctx context.Context, q contract.Request) (contract.Call, error) {
	for until := time.Now().Add(serverTime); ; time.Sleep(5 * time.Millisecond) {
		c, err := r.ask(ctx, "admin", r.lane.late(), q)
		err = cmp.Or(err, ctx.Err())
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("%w: %v, for %v", errBusy, q, serverTime)
		}
		if err != nil || c.Answer != contract.Busy && (c.Answer != contract.Unknown || !q.Repeatable()) {
			return c, err
		}
	}
}

// begin carries out what is before the race.
func (r *racing) begin(ctx context.Context, s *schedule) error {
	for _, q := range r.workload.race.Before {
		if !r.knows(q) {
			continue
		}
		c, err := r.askLate(ctx, q)
		if err != nil {
			return err
		}
		s.add(trace.Step{Kind: trace.Answers, Text: fmt.Sprintf("%s: %s", c.Request, c.Answer)})
		r.add(c)
	}
	return nil
}

func (r *racing) add(calls ...contract.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, calls...)
}

// client returns a client who sends requests to a replica, one after another.
func (r *racing) client(name string, at int, requests ...contract.Request) client {
	return func(ctx context.Context, tell func(string)) (got answers, err error) {
		for i, q := range requests {
			if !r.knows(q) || ctx.Err() != nil { // when a replica dies, its client ends
				continue
			}
			c, err := r.ask(ctx, name, at, q)
			if err != nil {
				return got, err
			}
			got.calls = append(got.calls, c)
			words := c.Answer
			if i > 0 {
				words = string(q.Verb) + ": " + words
			}
			tell(words)
		}
		return got, nil
	}
}

// actors returns those of a schedule: the clients, then what faults start.
func (r *racing) actors() (actors []*actor) {
	for n, requests := range r.workload.race.Clients {
		name := string(rune('A' + n))
		actors = append(actors, &actor{name: name, replica: n, first: true, send: r.client(name, n, requests...)})
	}
	late, first := r.lane.late(), r.workload.race.Clients[0][0]
	one := func(verb contract.Verb, units int64) contract.Request {
		return contract.Request{Verb: verb, Lines: []contract.Line{{Item: 'a', Count: units}}}
	}
	return append(actors,
		&actor{name: againName, replica: late, send: r.client(againName, late, first)},
		&actor{name: restockName, replica: late, send: r.client(restockName, late, one(contract.Restock, 1))},
		&actor{name: setName, replica: late, send: r.client(setName, late, one(contract.Set, setTo))})
}

// setTo is how many units there are when the stock is set.
const setTo = 5

// timePasses notes that all reservations have expired between since and now.
func (r *racing) timePasses(since int64) {
	r.add(contract.Call{
		Request: contract.Request{Verb: contract.Later, Time: afterAll}, Client: "time",
		Sent: since, Received: monotonic.Now(),
	})
}

// afterAll is longer than any reservation lasts.
const afterAll = 4 * contract.HoldTime

// judge looks up keys and reservations, lets all reservations expire, and asks the model whether it explains the
// answers and the stocks.
func (r *racing) judge(ctx context.Context, s *schedule, o trace.Execution) (trace.Execution, error) {
	served := !slices.ContainsFunc(s.actors, func(a *actor) bool { return len(a.answers.calls) > 0 }) // nobody asked
	told, err := s.told()
	if err != nil {
		return o, err
	}
	for _, a := range told {
		served = served || a.served()
		r.calls = append(r.calls, a.calls...)
	}
	choice := load.Choice{Strategy: r.strategy, Store: r.store}
	rules := choice.Rules()
	for _, q := range r.inspections(rules) {
		c, err := r.askLate(ctx, q)
		if errors.Is(err, errBusy) {
			o.Kind, o.Evidence = trace.Unjudged, []string{err.Error()}
			return o, nil
		}
		if err != nil {
			return o, err
		}
		r.calls = append(r.calls, c)
	}
	left, err := r.left(ctx, rules)
	if err != nil {
		return o, err
	}
	for _, stock := range left {
		s.add(trace.Step{Kind: trace.Answers, Text: fmt.Sprintf("%s has %d of item %d", stock.Store, stock.Units,
			r.items[stock.Item-'a'])})
	}
	o.Kind = trace.Right
	calls := r.wantedOnce()
	order, wrong := contract.Explain(map[string]contract.Rules{"": rules}, calls, left)
	if wrong != nil {
		o.Kind, o.Evidence = damageOf(wrong, rules, left), order
		o.Evidence = append(o.Evidence, wrong.Error())
		if o.Kind == trace.Leaked && len(calls) < len(r.calls) {
			o.Kind = trace.SoldTwice
		}
	} else if !served && len(s.struck) == 0 {
		o.Kind, o.Evidence = trace.NotServed, []string{"no request was served, and no fault has struck"}
	}
	o.Steps = s.trace()
	return o, nil
}

// sweep lets all reservations expire, and holds more units than there are: before that is refused, the service puts the
// units of expired reservations back.
func (r *racing) sweep(ctx context.Context) error {
	if err := r.lane.expireReservations(ctx, r.items); err != nil {
		return err
	}
	for i := range r.items {
		all := contract.Request{Verb: contract.Hold, Name: "all", Lines: []contract.Line{{Item: 'a' + byte(i), Count: 1000}}}
		if _, err := r.askLate(ctx, all); err != nil {
			return err
		}
	}
	return nil
}

// wantedOnce lists the calls. If a request without a key was sent twice and both may have sold, it leaves out the
// second one, because the client wanted it once.
func (r *racing) wantedOnce() []contract.Call {
	maySell := 0
	twice := func(c contract.Call) bool { return c.Client == againName && c.Key == "" }
	first := r.workload.race.Clients[0][0].String()
	for _, c := range r.calls {
		if (twice(c) || c.Client == "A" && c.Request.String() == first) && c.Answer != contract.Busy &&
			!strings.HasPrefix(c.Answer, "sold out") {
			maySell++
		}
	}
	if maySell < 2 {
		return r.calls
	}
	return slices.DeleteFunc(slices.Clone(r.calls), twice)
}

// inspections lists what is asked when all clients have their answers: what became of keys and reservations. Then all
// reservations end, and the sales are cancelled, which shows that their keys can be used.
func (r *racing) inspections(rules contract.Rules) (all contract.Script) {
	var after contract.Script
	asked, items := map[string]bool{}, map[byte]bool{}
	for _, q := range r.workload.race.Requests() {
		for _, l := range q.Lines {
			items[l.Item] = l.Item != 0
		}
		if q.Key != "" && rules.Keys != "" && !asked["key "+q.Key] {
			asked["key "+q.Key] = true
			all = append(all, contract.Request{Verb: contract.Look, Key: q.Key})
			after = append(after, contract.Request{Verb: contract.Cancel, Key: q.Key})
		}
		if q.Verb == contract.Hold && !asked[q.Name] && r.told[q.Name] {
			asked[q.Name] = true
			all = append(all, contract.Request{Verb: contract.Find, Name: q.Name})
		}
	}
	if !rules.Holds {
		return append(all, after...)
	}
	all = append(all, contract.Request{Verb: contract.Later, Time: afterAll})
	for _, item := range slices.Sorted(maps.Keys(items)) {
		all = append(all, contract.Request{
			Verb: contract.Hold, Name: "all-" + string(item), Lines: []contract.Line{{Item: item, Count: 1000}},
		})
	}
	return append(all, after...)
}

// left reads the stock of each item that was set, in each store of the strategy.
func (r *racing) left(ctx context.Context, rules contract.Rules) (all []contract.Stock, err error) {
	set := map[int64]byte{}
	for _, q := range r.workload.race.Requests() {
		if q.Verb == contract.Set {
			set[r.items[q.Lines[0].Item-'a']] = q.Lines[0].Item
		}
	}
	ids := slices.Sorted(maps.Keys(set))
	for _, store := range rules.Stores() {
		found, err := r.settled(ctx, store, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			all = append(all, contract.Stock{Store: store, Item: set[id], Units: found[id]})
		}
	}
	return all, nil
}

// madeUp returns races that are made up for a strategy; none if requests that meet are not served correctly.
func madeUp(choice load.Choice, seed uint64, races, clients int) (all []workload) {
	s := choice.Strategy
	if s.ClaimFor(2, false) != verify.ClaimCorrect {
		return nil
	}
	rules := choice.Rules()
	can := contract.Can{
		Rules: map[string]contract.Rules{"": rules},
		// What is written behind may be late after a fault, unless it is a sale.
		Restock: s.ClaimFor(2, true) == verify.ClaimCorrect && !s.WriteThrough && !s.WriteBehind,
		Cancel:  rules.Keys != "", Known: true, Items: 2,
	}
	for n := range races {
		text := can.Race(rand.New(rand.NewPCG(seed, uint64(n))), clients).String()
		w, err := race(text)
		if err != nil {
			panic(err) // what is made up can be read
		}
		all = append(all, w)
	}
	return all
}

// isRace reports whether a workload is named like its text, as races are that were made up and those of the user.
func isRace(name string) bool { return strings.Contains(name, "/") }
