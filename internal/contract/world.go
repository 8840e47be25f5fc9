package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Answers that say nothing about what a request asked for.
const (
	Unknown = "unknown" // the request may take effect, or have taken effect
	Busy    = "busy"    // it was refused, has changed nothing, and may be sent again
	Refused = "refused" // it was refused, for a reason that is not known, and has changed nothing
)

// mostUnder is how many outcomes of a script may be unknown: each of them doubles the states.
const mostUnder = 4

// World is every state that a service may be in, according to its answers so far.
type World struct {
	rules    map[string]Rules // by the strategy that a request names; the tested one has the empty name
	states   []state
	unknowns int // the most requests whose outcomes may be unknown
}

// NewWorld returns a world without items. The rules of the strategy that is tested have the empty name.
func NewWorld(rules map[string]Rules) *World {
	return &World{rules, []state{newState()}, mostUnder}
}

// MismatchError is an answer, or a stock, that no state explains.
type MismatchError struct {
	What string // that is wrong: "answer", or "stock of a in mysql"
	Got  string
	Want []string // each that is right
	Rule string   // that is broken
}

// Error says what is wrong.
func (m *MismatchError) Error() string {
	want := make([]string, len(m.Want))
	for i, right := range m.Want {
		want[i] = strconv.Quote(right)
	}
	return fmt.Sprintf("%s %q, want %s: %s", m.What, m.Got, strings.Join(want, " or "), m.Rule)
}

// Answered keeps the states that an answer allows. It fails with a MismatchError, or if too little is known.
func (w *World) Answered(q Request, answer string) error {
	var after []state
	wrong := &MismatchError{What: "answer", Got: answer}
	for _, s := range w.open() {
		q := w.firstStep(s, q, answer)
		if answer == Unknown {
			if len(s.under) >= w.unknowns {
				return fmt.Errorf("the outcomes of more than %d requests of a script are unknown", w.unknowns)
			}
			s.under = append(slices.Clone(s.under), q)
			after = append(after, s)
			continue
		}
		if answer == Busy {
			after = append(after, w.afterBusy(s, q)...)
			continue
		}
		for _, o := range w.rules[q.By].step(s, q) {
			switch {
			case o.answer == answer:
				after = append(after, o.after)
			case !slices.Contains(wrong.Want, o.answer):
				wrong.Want, wrong.Rule = append(wrong.Want, o.answer), o.rule
			}
		}
	}
	if len(after) == 0 {
		return wrong
	}
	w.states = after
	return nil
}

// Found keeps the states that the stock of an item in a store allows.
func (w *World) Found(store string, item byte, units int64) error {
	var after []state
	wrong := &MismatchError{
		What: fmt.Sprintf("stock of %c in %s", item, store), Got: strconv.FormatInt(units, 10),
		Rule: "the stock agrees with the answers",
	}
	for _, s := range w.open() {
		want := s.stock[place{store, item}]
		if want == units {
			after = append(after, s)
		} else if text := fmt.Sprint(want); !slices.Contains(wrong.Want, text) {
			wrong.Want = append(wrong.Want, text)
		}
	}
	if len(after) == 0 {
		return wrong
	}
	w.states = after
	return nil
}

// open returns the states, and those that they may have become by themselves.
func (w *World) open() (all []state) {
	seen := map[string]bool{}
	add := func(states []state) {
		for _, s := range states {
			if text := fmt.Sprint(s); !seen[text] {
				seen[text] = true
				all = append(all, s)
			}
		}
	}
	if len(w.states) == 1 && len(w.alone(w.states[0])) == 0 {
		return w.states
	}
	add(w.states)
	for opened := 0; opened < len(all); {
		s := all[opened]
		opened++
		add(w.alone(s))
	}
	return all
}

// A strategy with reservations carries out a sale without a key as a hold and a confirmation. If its outcome is unknown
// or its answer is Busy, the name of the hold begins with one of these. Its units may come back at any time. After an
// unknown outcome (halfSold), the hold may also be confirmed.
const (
	halfSold = "may be sold "
	notSold  = "not sold "
)

// firstStep returns the first step of such a sale, or the request itself.
func (w *World) firstStep(s state, q Request, answer string) Request {
	if w.rules[q.By].Holds && q.Verb == Sell && q.Key == "" && (answer == Unknown || answer == Busy) {
		name := halfSold
		if answer == Busy {
			name = notSold
		}
		q.Verb, q.Name = Hold, fmt.Sprint(name, len(s.under), len(s.holds))
	}
	return q
}

// afterBusy returns what a request may leave that is refused as busy: nothing, a record of a refusal, or the
// reservation of a sale in two steps.
func (w *World) afterBusy(s state, q Request) []state {
	if q.Verb != Hold || !strings.HasPrefix(q.Name, notSold) {
		return w.withRefusals(s, q)
	}
	all := []state{s}
	for _, o := range w.rules[q.By].step(s, q) {
		if o.after.holds[q.Name].state == "held" {
			all = append(all, o.after)
		}
	}
	return all
}

// withRefusals returns a state as it is, and with refusals of a request that may be recorded, in a step of its own.
func (w *World) withRefusals(s state, q Request) (all []state) {
	all = append(all, s)
	if q.Key == "" {
		return all
	}
	id := w.rules[q.By].Keys + " " + q.Key
	for _, o := range w.rules[q.By].step(s, q) {
		if r := o.after.keys[id]; r.refused && !s.keys[id].refused {
			later := s.clone()
			later.unrecorded = append(later.unrecorded, unrecorded{id, r})
			all = append(all, later)
		}
	}
	return all
}

// alone returns what a state may become by itself: a request whose outcome is not known takes effect, the units of an
// expired reservation are put back, or an old refusal is forgotten.
func (w *World) alone(s state) (all []state) {
	for n, q := range s.under {
		without := s.clone()
		without.under = slices.Delete(without.under, n, n+1)
		for _, o := range w.rules[q.By].step(without, q) {
			all = append(all, o.after)
		}
		all = append(all, w.withRefusals(without, q)[1:]...)
	}
	for n, r := range s.unrecorded {
		if _, taken := s.keys[r.id]; !taken {
			recorded := s.clone()
			recorded.unrecorded = slices.Delete(recorded.unrecorded, n, n+1)
			recorded.keys[r.id] = r.record
			all = append(all, recorded)
		}
	}
	for name, h := range s.holds {
		if h.state != "held" {
			continue
		}
		c := change{state: s.clone()}
		if h.now() == "expired" || strings.HasPrefix(name, halfSold) || strings.HasPrefix(name, notSold) {
			c.putBack(name, "expired")
			all = append(all, c.state)
		}
		if strings.HasPrefix(name, halfSold) {
			h.state = "confirmed"
			kept := s.clone()
			kept.holds[name] = h
			all = append(all, kept)
		}
	}
	for id, r := range s.keys {
		if r.refused && r.age >= refusalTime {
			forgotten := s.clone()
			delete(forgotten.keys, id)
			all = append(all, forgotten)
		}
	}
	return all
}
