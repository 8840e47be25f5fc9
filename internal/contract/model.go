package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Rules is what a strategy promises on one store.
type Rules struct {
	Store     string // from which it sells
	Keys      string // where it keeps keys: strategies with the same share them; empty: it refuses keys
	Remaining bool   // its receipts tell what remains
	Orders    bool   // it takes orders
	Holds     bool   // it takes reservations
	Oversells bool   // it never refuses
	Meets     bool   // it may carry out requests at the same time
	Behind    string // the store that it writes to later; empty: none
	Through   string // the store that it also writes to, in the same request; empty: none

	// Plain reports that little is known of the answers: not what is left of an item that is sold out, nor whether an
	// answer is a replay. Any request may be refused. A key that was used for another request is refused, or, unless
	// RefusesReuse is set, gets the first answer.
	Plain, RefusesReuse bool
}

// HoldTime is how long reservations last unless a request says otherwise, and refusalTime how long a service keeps a
// refusal at least.
const (
	HoldTime    = time.Minute
	refusalTime = time.Minute
)

// MaxStock is the largest stock of an item.
const MaxStock = 1<<53 - 1

// place is an item in a store.
type place struct {
	store string
	item  byte
}

// record is what became of the request with a key.
type record struct {
	asked   string   // what the request asked for; empty if it never came
	stores  []string // from which units were taken, or would have been
	answer  string   // the first; empty if nothing was sold or refused
	sold    []sold   // none if it was refused
	barred  bool     // it was cancelled as a whole: nothing is sold for it any more
	refused bool
	hold    string // the reservation that it made
	age     time.Duration
}

// sold is units of an item that were sold, cancelled and put back.
type sold struct {
	item                   byte
	count, cancelled, back int64
	epoch                  int
}

// held is a reservation.
type held struct {
	item  byte
	count int64
	store string
	epoch int
	state string // held, confirmed, cancelled or expired
	age   time.Duration
	lasts time.Duration
}

// state is what a service knows.
type state struct {
	stock      map[place]int64
	epoch      map[byte]int
	keys       map[string]record // by the place where keys are kept, and the key
	holds      map[string]held
	unrecorded []unrecorded // refusals that may still be recorded
	// under has the requests whose outcome is not known: they may take effect at any time from now on, or never.
	under []Request
}

// unrecorded is a refusal that may still be recorded.
type unrecorded struct {
	id string // of the key
	record
}

func newState() state {
	return state{stock: map[place]int64{}, epoch: map[byte]int{}, keys: map[string]record{}, holds: map[string]held{}}
}

func (s state) clone() state {
	c := state{
		maps.Clone(s.stock), maps.Clone(s.epoch), maps.Clone(s.keys), maps.Clone(s.holds), slices.Clone(s.unrecorded),
		slices.Clone(s.under),
	}
	for key, r := range c.keys {
		r.sold = slices.Clone(r.sold)
		c.keys[key] = r
	}
	return c
}

// outcome is a right answer, with the state that it leaves.
type outcome struct {
	answer string
	rule   string // of docs/http-api.md, in a few words
	after  state
}

// step returns the right answers to a request. It is a pure function: s stays as it is.
func (r Rules) step(s state, q Request) []outcome {
	c := change{Rules: r, state: s.clone(), Request: q}
	switch q.Verb {
	case Sell, Order, Hold:
		if r.Plain {
			return c.plain()
		}
		return c.keyed()
	case Confirm, Release, Find:
		return c.reservation()
	case Cancel:
		if r.Plain {
			return c.plainCancel()
		}
		return c.cancel()
	case Look:
		return c.look()
	case Restock:
		if r.Plain {
			return c.plainRestock()
		}
		return c.restock()
	case Set:
		return c.set()
	default:
		return c.pass()
	}
}

// change is a request that is being carried out on a state.
type change struct {
	Rules
	state
	Request
}

func (c change) answer(rule, format string, args ...any) []outcome {
	return []outcome{{fmt.Sprintf(format, args...), rule, c.state}}
}

// asked is what a key stands for.
func (c change) asked() string {
	lines := slices.SortedFunc(slices.Values(c.Lines), func(a, b Line) int { return cmp.Compare(a.Item, b.Item) })
	return fmt.Sprint(c.Verb, " ", linesText(lines), " of ", c.Store, " for ", c.holdTime())
}

func (c change) id() string { return c.Keys + " " + c.Key }

// keyed carries out a sale, an order or a hold, unless its key is taken.
func (c change) keyed() []outcome {
	c.Lines = merged(c.Lines)
	first, taken := c.keys[c.id()]
	switch {
	case c.Verb == Order && !c.Orders:
		return c.answer("the strategy takes no orders", "no orders")
	case c.Verb == Hold && !c.Holds:
		return c.answer("the strategy takes no reservations", "no reservations")
	case c.Key == "":
		return c.take()
	case c.Keys == "":
		return c.answer("the strategy keeps no keys", "no keys")
	case c.unknown() != "" && taken: // either may be noticed first
		return append(c.replay(first), c.answer("the item is not known", "%s", c.unknown())...)
	case !taken:
		return c.take()
	}
	return c.replay(first)
}

// replay answers a request whose key is taken.
func (c change) replay(first record) []outcome {
	switch {
	case first.barred && first.asked == "":
		return c.answer("the sale was cancelled before it came", "cancelled, replayed")
	case first.asked != c.asked():
		return c.answer("the key was used for another request", "key reused")
	case first.barred:
		return c.answer("the sale was cancelled", "cancelled, replayed")
	case first.hold != "":
		return c.answer("the key's reservation, as it is now", "%s %s, replayed", first.hold, c.holds[first.hold].now())
	}
	return c.answer("the first answer to this key", "%s, replayed", first.answer)
}

// plain returns the answers to a sale of a service of which little is known.
func (c change) plain() []outcome {
	refused := c.refused()
	first, taken := c.keys[c.id()]
	if !taken && c.unknown() != "" {
		return slices.Concat(refused, c.answer("the item is not known", "sold out"))
	}
	all := c.keyed()
	if taken && first.barred && first.asked == c.asked() {
		return plainly(slices.Concat(refused, c.answer("the sale was cancelled", "%s", first.answer),
			c.answer("the sale was cancelled", "sold out")))
	}
	if all[0].answer == "key reused" {
		all = slices.Concat(refused, c.answer("what another request with the key asked for is not sold", "sold out"))
		if !c.RefusesReuse {
			all = append(all, c.answer("the first answer to this key", "%s", first.answer)...)
		}
		return plainly(all)
	}
	return append(plainly(all), refused...)
}

// refused returns the answer of a plain service that does nothing. It shares nothing with c, which may go on.
func (c change) refused() []outcome {
	c.state = c.state.clone()
	return c.answer("it may refuse any request", Refused)
}

// plainCancel returns the answers to a cancellation. Whether units are put back into a stock that was set since is left
// to a plain service.
func (c change) plainCancel() []outcome {
	refused := c.refused()
	r := c.keys[c.id()]
	if len(r.sold) == 0 || r.barred {
		return append(c.answer("nothing is put back that was not sold, or twice", "cancelled"), refused...)
	}
	r.barred = true
	c.keys[c.id()] = r
	if l := r.sold[0]; c.epoch[l.item] == l.epoch {
		c.add(r.stores, l.item, l.count)
		return append(c.answer("the units of the sale are put back", "cancelled"), refused...)
	}
	left := c
	left.state = c.state.clone()
	c.add(r.stores, r.sold[0].item, r.sold[0].count)
	return slices.Concat(
		left.answer("the stock was set since", "cancelled"), c.answer("the units are put back", "cancelled"), refused)
}

func (c change) plainRestock() []outcome {
	refused := c.refused()
	c.add(c.Stores(), c.Lines[0].Item, c.Lines[0].Count)
	return append(c.answer("the units are added", "restocked"), refused...)
}

// plainly leaves out of answers what a plain service does not tell.
func plainly(all []outcome) []outcome {
	for i := range all {
		answer, _, _ := strings.Cut(all[i].answer, ", replayed")
		if strings.HasPrefix(answer, "sold out") {
			answer = "sold out"
		}
		all[i].answer = answer
	}
	return all
}

// merged returns one line for each item, in ascending order.
func merged(lines []Line) (all []Line) {
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return cmp.Compare(a.Item, b.Item) })
	for _, l := range sorted {
		if n := len(all); n > 0 && all[n-1].Item == l.Item {
			all[n-1].Count += l.Count
		} else {
			all = append(all, l)
		}
	}
	return all
}

// take takes the units out of the stock. If several items are short, any of them may be blamed.
func (c change) take() (all []outcome) {
	short := func(l Line) bool { return c.stock[place{c.Store, l.Item}] < l.Count }
	if c.Holds && slices.ContainsFunc(c.Lines, short) {
		c.takeBack()
	}
	if unknown := c.unknown(); unknown != "" {
		all = c.answer("the item is not known", "%s", unknown)
	}
	for _, l := range c.Lines {
		units, known := c.stock[place{c.Store, l.Item}]
		if known && units < l.Count && !c.Oversells {
			refused := c
			refused.state = c.state.clone()
			text := fmt.Sprintf("%ssold out at %d", c.blame(l), units)
			refused.remember(record{answer: text, refused: true})
			all = append(all, refused.answer("fewer units are left than were asked for", "%s", text)...)
		}
	}
	if len(all) > 0 {
		return all
	}
	var remaining []string
	var lines []sold
	for _, l := range c.Lines {
		c.add(c.Stores(), l.Item, -l.Count)
		lines = append(lines, sold{item: l.Item, count: l.Count, epoch: c.epoch[l.Item]})
		remaining = append(remaining, fmt.Sprint(c.stock[place{c.Store, l.Item}]))
	}
	text := strings.Join(remaining, " ") + " remain"
	if !c.Remaining {
		text = "sold"
	}
	if c.Verb == Hold {
		c.holds[c.Name] = held{
			item: c.Lines[0].Item, count: c.Lines[0].Count, store: c.Store, epoch: c.epoch[c.Lines[0].Item],
			state: "held", lasts: c.holdTime(),
		}
	}
	c.remember(record{answer: text, sold: lines, hold: c.Name})
	return c.answer("enough units are left", "%s", text)
}

// unknown is the answer if an item is not known, or else empty.
func (c change) unknown() string {
	for _, l := range c.Lines {
		if _, known := c.stock[place{c.Store, l.Item}]; !known {
			return c.blame(l) + "unknown item"
		}
	}
	return ""
}

// blame names the item of an order that is refused.
func (c change) blame(l Line) string {
	if c.Verb != Order {
		return ""
	}
	return string(l.Item) + ": "
}

// Stores lists those that the strategy writes to.
func (r Rules) Stores() []string {
	return slices.DeleteFunc([]string{r.Store, r.Through, r.Behind}, func(s string) bool { return s == "" })
}

func (c change) add(stores []string, item byte, units int64) {
	for _, store := range stores {
		c.stock[place{store, item}] += units
	}
}

func (c change) remember(r record) {
	if c.Key == "" {
		return
	}
	if c.Verb != Cancel {
		r.asked, r.stores = c.asked(), c.Stores()
	}
	c.keys[c.id()] = r
}

// now is the state that a client is told: a reservation expires by the clock.
func (h held) now() string {
	if h.state == "held" && h.age >= h.lasts {
		return "expired"
	}
	return h.state
}

// takeBack puts back the units of expired reservations of the items that are asked for.
func (c change) takeBack() {
	for name, h := range c.holds {
		if slices.ContainsFunc(c.Lines, func(l Line) bool { return l.Item == h.item }) {
			c.end(name)
		}
	}
}

// end puts back the units of a reservation that has expired.
func (c change) end(name string) {
	if h := c.holds[name]; h.state == "held" && h.now() == "expired" {
		c.putBack(name, "expired")
	}
}

// putBack ends a reservation without a sale. Its units are added to no other stock than the one they were taken from.
func (c change) putBack(name, how string) {
	h := c.holds[name]
	if c.epoch[h.item] == h.epoch {
		c.stock[place{h.store, h.item}] += h.count
	}
	h.state = how
	c.holds[name] = h
}

func (c change) reservation() []outcome {
	if _, known := c.holds[c.Name]; !known {
		return c.answer("there is no such reservation", "unknown reservation")
	}
	c.end(c.Name)
	h := c.holds[c.Name]
	switch {
	case c.Verb == Confirm && h.state == "held":
		h.state = "confirmed"
		c.holds[c.Name] = h
		return c.answer("a reservation that is held is confirmed", "confirmed")
	case c.Verb == Confirm && h.state != "confirmed", c.Verb == Release && h.state == "confirmed":
		return c.answer("the reservation has ended otherwise", "refused: %s", h.state)
	case c.Verb == Release && h.state == "held":
		c.putBack(c.Name, "cancelled")
		return c.answer("a reservation that is held is cancelled", "cancelled")
	}
	return c.answer("the state of the reservation", "%s", h.state)
}

// sale returns the record of a key, whether there is one, and the answers of a refusal if nobody may see it.
func (c change) sale() (r record, known bool, refusal []outcome) {
	if c.Keys == "" {
		return r, false, c.answer("the strategy keeps no keys", "no keys")
	}
	r, known = c.keys[c.id()]
	if known && (r.hold != "" || len(r.stores) > 0 && r.stores[0] != c.Store) {
		return r, known, c.answer("the key is that of a reservation, or of a sale from another store", "key reused")
	}
	return r, known, nil
}

func (c change) look() []outcome {
	r, known, refusal := c.sale()
	switch {
	case refusal != nil:
		return refusal
	case !known:
		return c.answer("nothing is known of the key", "unknown sale")
	}
	return c.answer("what became of the sale", "%s", r.tell())
}

// tell is what became of a request with a key.
func (r record) tell() string {
	switch {
	case len(r.sold) == 0 && r.barred:
		return "never-sold"
	case len(r.sold) == 0:
		return "refused"
	}
	words := []string{"sold"}
	if r.barred {
		words[0] = "cancelled"
	}
	for _, l := range r.sold {
		words = append(words, fmt.Sprintf("%d%c/%d/%d", l.count, l.item, l.cancelled, l.back))
	}
	return strings.Join(words, " ")
}

func (c change) cancel() []outcome {
	r, known, refusal := c.sale()
	switch whole := c.Lines == nil; {
	case refusal != nil:
		return refusal
	case !known && !whole:
		return c.answer("nothing is known of the key", "unknown sale")
	case !known:
		c.remember(record{barred: true})
		return c.answer("a sale that comes later sells nothing", "never-sold")
	case r.barred:
		return c.answer("the sale was cancelled before", "%s, replayed", r.tell())
	case r.refused && whole:
		r.barred, r.refused = true, false
		c.keys[c.id()] = r
		return c.answer("a refusal that is cancelled sells nothing later", "never-sold")
	case r.refused:
		return c.answer("nothing was sold", "more than sold")
	}
	return c.cancelLines(r)
}

// cancelLines cancels units of a sale.
func (c change) cancelLines(r record) []outcome {
	wanted := map[byte]int64{} // units that are to be cancelled in all
	for _, l := range r.sold {
		if c.Lines == nil {
			wanted[l.item] = l.count
		}
	}
	for _, l := range c.Lines {
		if l.Item == 0 && len(r.sold) == 1 {
			l.Item = r.sold[0].item
		}
		i := slices.IndexFunc(r.sold, func(s sold) bool { return s.item == l.Item })
		if i < 0 || l.Count > r.sold[i].count {
			return c.answer("fewer units were sold than are to be cancelled", "more than sold")
		}
		wanted[l.Item] = l.Count
	}
	if c.overstocks(r, wanted) {
		return c.answer("a stock has a greatest number", "overstocked")
	}
	replayed := ", replayed"
	r.barred = true
	for i := range r.sold {
		l := &r.sold[i]
		if more := wanted[l.item] - l.cancelled; more > 0 {
			replayed, l.cancelled = "", l.cancelled+more
			if c.epoch[l.item] == l.epoch {
				l.back += more
				c.add(r.stores, l.item, more)
			}
		}
		r.barred = r.barred && l.cancelled == l.count
	}
	c.keys[c.id()] = r
	return c.answer("units of a sale are put back once, into the stock they were sold from", "%s%s", r.tell(), replayed)
}

// overstocks reports whether too many units would be put back.
func (c change) overstocks(r record, wanted map[byte]int64) bool {
	return slices.ContainsFunc(r.sold, func(l sold) bool {
		back := wanted[l.item] - l.cancelled
		return back > 0 && c.epoch[l.item] == l.epoch && c.stock[place{r.stores[0], l.item}] > MaxStock-back
	})
}

func (c change) restock() []outcome {
	l := c.Lines[0]
	if _, known := c.stock[place{c.Store, l.Item}]; !known {
		return c.answer("the item is not known", "unknown item")
	}
	if c.stock[place{c.Store, l.Item}] > MaxStock-l.Count {
		return c.answer("a stock has a greatest number", "overstocked")
	}
	c.add(c.Stores(), l.Item, l.Count)
	return c.answer("the units are added", "%d in stock", c.stock[place{c.Store, l.Item}])
}

// setTogether lists the stores that an administrator sets at once.
var setTogether = []string{"mysql", "redis", "slots", "units"}

func (c change) set() []outcome {
	l := c.Lines[0]
	c.epoch[l.Item]++
	for _, store := range append(c.Stores(), setTogether...) {
		c.stock[place{store, l.Item}] = l.Count
	}
	return c.answer("the stock is set in every store", "%d in stock", l.Count)
}

// pass lets time pass.
func (c change) pass() []outcome {
	if c.Verb == Prune {
		c.keys = map[string]record{}
		return c.answer("what is old is deleted", "")
	}
	for name, h := range c.holds {
		h.age += c.Time
		c.holds[name] = h
	}
	for id, r := range c.keys {
		r.age += c.Time
		c.keys[id] = r
	}
	return c.answer("time passes", "")
}
