package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stock/internal/contract"
	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/verify"
)

// mostClients is how many requests a schedule may have.
const mostClients = 3

// CheckRace returns how many clients a race has, or what is wrong with its text.
func CheckRace(text string) (clients int, err error) {
	w, err := race(text)
	switch {
	case err != nil:
		return 0, err
	case len(w.race.Clients) == 0 || len(w.race.Clients) > mostClients:
		return 0, fmt.Errorf("%q has %d clients, and needs 1 to %d: write what each asks for behind a slash, such as "+
			"'set 10a / sell 1a / sell 2a'", text, len(w.race.Clients), mostClients)
	case !slices.ContainsFunc(w.race.Before, func(q contract.Request) bool { return q.Verb == contract.Set }):
		return 0, fmt.Errorf("%q sets no stock: begin with 'set 10a'", text)
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
		LetPass: func(ctx context.Context, q contract.Request, ids []int64, prefix string) error {
			return contract.Stores{DB: x.lane.db.DB, Redis: x.lane.keys}.Age(ctx, q.Time, ids, prefix)
		},
	}
	for _, replica := range x.lane.replicas {
		site.Replicas, site.Admins = append(site.Replicas, replica.URL), append(site.Admins, replica.AdminURL)
	}
	r.on = site.Service()
	return r
}

// ask sends a request to a replica, and notes the call.
func (r *racing) ask(ctx context.Context, client string, at int, q contract.Request) (contract.Call, error) {
	q.Replica = at
	c := contract.Call{Request: q, Client: client, Sent: monotonic.Now()}
	answer, err := r.on.Ask(ctx, q)
	if c.Answer = answer; err != nil {
		c.Answer = contract.Unknown
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

// askAlone sends a request to the replica that no client uses, until it is not busy.
func (r *racing) askAlone(ctx context.Context, q contract.Request) (contract.Call, error) {
	for until := time.Now().Add(serverTime); ; time.Sleep(5 * time.Millisecond) {
		c, err := r.ask(ctx, "admin", r.lane.late(), q)
		if err == nil && c.Answer == contract.Busy && time.Now().After(until) {
			err = fmt.Errorf("%v is refused as busy for %v", q, serverTime)
		}
		if err != nil || c.Answer != contract.Busy {
			return c, err
		}
	}
}

// begin carries out what is before the race.
func (r *racing) begin(ctx context.Context) error {
	for _, q := range r.workload.race.Before {
		if !r.knows(q) {
			continue
		}
		c, err := r.askAlone(ctx, q)
		if err != nil {
			return err
		}
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
			if !r.knows(q) {
				continue
			}
			c, failed := r.ask(ctx, name, at, q)
			got.calls = append(got.calls, c)
			words := c.Answer
			if i > 0 {
				words = string(q.Verb) + ": " + words
			}
			tell(words)
			if failed != nil {
				break // its replica has died
			}
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

// timePasses notes that all reservations end at some time since a fault began to strike.
func (r *racing) timePasses(since int64) {
	r.add(contract.Call{
		Request: contract.Request{Verb: contract.Later, Time: afterAll}, Client: "time",
		Sent: since, Received: monotonic.Now(),
	})
}

// afterAll is longer than any reservation lasts.
const afterAll = 4 * contract.HoldTime

// judge asks what became of keys and reservations, lets the time of these pass, and has the model explain all answers
// and what is left.
func (r *racing) judge(ctx context.Context, s *schedule, o trace.Execution) (trace.Execution, error) {
	served := !slices.ContainsFunc(s.actors, func(a *actor) bool { return len(a.answers.calls) > 0 }) // nobody asked
	for _, a := range s.actors {
		if !a.started {
			continue
		}
		if a.lost {
			a.answers.forget()
		}
		a.answers.delay(a.executed)
		served = served || a.answers.served()
		r.calls = append(r.calls, a.answers.calls...)
	}
	choice := load.Choice{Strategy: r.strategy, Store: r.store}
	rules := choice.Rules()
	for _, q := range slices.DeleteFunc(r.inspections(rules), func(q contract.Request) bool { return !r.knows(q) }) {
		c, err := r.askAlone(ctx, q)
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
	calls := slices.DeleteFunc(slices.Clone(r.calls), func(c contract.Call) bool {
		return c.Client == againName && c.Key == "" // its client wants it once
	})
	o.Kind = trace.Right
	order, wrong := contract.Explain(map[string]contract.Rules{"": rules}, calls, left)
	if wrong != nil {
		o.Kind, o.Evidence = damageOf(wrong, rules), append(order, wrong.Error())
		if o.Kind == trace.Leaked && len(calls) < len(r.calls) {
			o.Kind = trace.SoldTwice
		}
	} else if !served && len(s.struck) == 0 {
		o.Kind, o.Evidence = trace.NotServed, []string{"no request was served, and no fault has struck"}
	}
	o.Steps = s.trace()
	return o, nil
}

// inspections lists what is asked when all clients have their answers.
func (r *racing) inspections(rules contract.Rules) (all contract.Script) {
	asked := map[string]bool{}
	held := map[byte]bool{}
	for _, q := range r.workload.race.Requests() {
		if q.Key != "" && rules.Keys != "" && !asked["key "+q.Key] {
			asked["key "+q.Key] = true
			all = append(all, contract.Request{Verb: contract.Look, Key: q.Key})
		}
		if q.Verb == contract.Hold && !asked[q.Name] {
			asked[q.Name] = true
			held[q.Lines[0].Item] = true
			all = append(all, contract.Request{Verb: contract.Find, Name: q.Name})
		}
	}
	if len(held) > 0 {
		all = append(all, contract.Request{Verb: contract.Later, Time: afterAll})
	}
	for _, item := range slices.Sorted(maps.Keys(held)) {
		all = append(all, contract.Request{
			Verb: contract.Hold, Name: "all-" + string(item), Lines: []contract.Line{{Item: item, Count: 1000}},
		})
	}
	return all
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
	for _, store := range slices.Backward(rules.Stores()) { // what knows how many units there are comes first
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

// damageOf names what the model found.
func damageOf(wrong error, rules contract.Rules) string {
	m, ok := errors.AsType[*contract.MismatchError](wrong)
	if !ok {
		return trace.Unjudged
	}
	wants := func(text string) bool {
		return slices.ContainsFunc(m.Want, func(want string) bool { return strings.Contains(want, text) })
	}
	_, store, isStock := strings.Cut(m.What, " in ")
	switch {
	case isStock:
		return differs(m, rules.Through != "" && store == rules.Store)
	case strings.HasSuffix(m.Got, " remain") && wants(" remain"):
		return differs(m, false)
	case strings.HasSuffix(m.Got, " in stock"): // what was put back is gone afterwards, or what was sold before
		return trace.Leaked
	case wants("replayed") && !strings.Contains(m.Got, "replayed"):
		return trace.SoldTwice
	case strings.Contains(m.Got, "sold out") && wants(" remain"):
		return trace.Undersold
	case strings.HasSuffix(m.Got, " remain") && wants("sold out"):
		return trace.Oversold
	}
	return trace.OtherWrong
}

// differs names the damage if another number of units is left than there must be. The store may be one that only
// sells, while another one knows how many there are.
func differs(m *contract.MismatchError, onlySells bool) string {
	units := func(text string) (n int64) {
		text, _, _ = strings.Cut(text, " ")
		n, _ = strconv.ParseInt(text, 10, 64)
		return n
	}
	more := slices.ContainsFunc(m.Want, func(want string) bool { return units(m.Got) > units(want) })
	switch {
	case onlySells && more:
		return trace.SellsMore
	case onlySells:
		return trace.SellsLess
	case more:
		return trace.LostUpdate
	}
	return trace.Leaked
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

// shortenTime is how long simpler races are searched for one that refutes a claim, too.
const shortenTime = time.Minute

// refuting returns a race that was made up and refutes a claim.
func refuting(cells []trace.Cell) (w workload, found bool) {
	for _, c := range cells {
		for _, s := range c.Shortest {
			if !c.Held && isMadeUp(s.Execution.Workload) {
				return known(s.Execution.Workload)
			}
		}
	}
	return w, false
}

// shorten looks for simpler races that refute a claim, as one does that was made up, until its time is over. It puts
// their schedules into the place of those that were found first.
func (x *Explorer) shorten(
	ctx context.Context, choice load.Choice, r trace.Result, bounds trace.Bounds, claims claims,
) trace.Result {
	w, found := refuting(r.Cells)
	ctx, cancel := context.WithTimeout(ctx, shortenTime)
	defer cancel()
	refuted, watch := x.UntilRefuted, x.Watch
	x.UntilRefuted, x.Watch = true, nil
	defer func() { x.UntilRefuted, x.Watch = refuted, watch }()
	var best trace.Result
	for found && ctx.Err() == nil {
		found = false
		for _, next := range w.race.Simpler() {
			tried, err := race(next.String())
			if err != nil || !tried.suits(choice.Strategy, choice.Store) {
				continue
			}
			result, err := x.search(ctx, choice, []workload{tried}, bounds, claims, cells{})
			if err == nil && !result.Held() {
				w, best, found = tried, result, true
				break
			}
		}
	}
	r.Workloads = append(r.Workloads, best.Workloads...)
	for _, simple := range best.Cells {
		for _, c := range r.Cells {
			if c.Fault == simple.Fault && c.Requests == simple.Requests && !simple.Held {
				maps.DeleteFunc(c.Shortest, func(_ string, s trace.Schedule) bool { return isMadeUp(s.Execution.Workload) })
				maps.Copy(c.Shortest, simple.Shortest)
			}
		}
	}
	return r
}

// isMadeUp reports whether a workload is a race, named like its text.
func isMadeUp(name string) bool { return strings.Contains(name, "/") }
