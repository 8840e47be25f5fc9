package contract

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
)

// everything is what a strategy can promise.
var everything = Rules{Store: "mysql", Keys: "mysql", Remaining: true, Meets: true, Orders: true, Holds: true}

// shop is a service that does what the model says, or not quite.
type shop struct {
	mu    sync.Mutex
	rules Rules
	state state
	left  []Request // whose client has hung up: each is carried out later, or never
	rng   *rand.Rand
	// wrong changes a request, its answer, or what it does. It may be nil.
	wrong func(before state, q Request, o outcome) outcome
}

func (s *shop) Ask(_ context.Context, q Request) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(1, 1))
	}
	s.left = slices.DeleteFunc(s.left, func(q Request) bool {
		now := s.rng.IntN(3) == 0
		if now {
			s.carryOut(q)
		}
		return now
	})
	if q.Manner == Leave {
		s.left = append(s.left, q)
		return Unknown, nil
	}
	return s.carryOut(q), nil
}

func (s *shop) carryOut(q Request) (answer string) {
	o := s.rules.step(s.state, q)[0]
	if s.wrong != nil {
		o = s.wrong(s.state, q, o)
	}
	s.state = o.after
	return o.answer
}

func (s *shop) Left(_ context.Context, store string, item byte) (int64, error) {
	return s.state.stock[place{store, item}], nil
}

func (s *shop) Pending(context.Context) (bool, error) { return false, nil }

func (s *shop) Curl(q Request) string { return "curl " + q.String() }

func TestTheModelTellsTheStories(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/stories.txt")
	must.Succeed(t, err)
	for story := range strings.SplitSeq(string(text), "\n\n") {
		title, steps, _ := strings.Cut(story, "\n")
		script, err := Parse(steps)
		must.Succeed(t, err)
		on := &shop{rules: everything, state: newState()}
		for i, line := range strings.Split(strings.TrimSpace(steps), "\n") {
			columns := strings.Split(line, "|")
			got, _ := on.Ask(t.Context(), script[i])
			if want := strings.TrimSpace(columns[1]); got != want {
				t.Errorf("%s: %s: %q, want %q", title, script[i], got, want)
			}
			for n, want := range strings.Fields(columns[2]) {
				left, _ := on.Left(t.Context(), "mysql", letter(n))
				if strconv.FormatInt(left, 10) != want {
					t.Errorf("%s: %s: %d units of %c are left, want %s", title, script[i], left, letter(n), want)
				}
			}
		}
	}
}

func TestAScriptIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	can := Can{Rules: map[string]Rules{"": everything, "batch/mysql": everything}, Time: true, Prune: true, Restock: true,
		Cancel: true, Manner: true, Leave: true, Items: 2}
	for seed := range uint64(50) {
		s := can.Generate(rand.New(rand.NewPCG(seed, 0)), 50)
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%v\n%v\n%v", err, s, again)
		}
	}
}

func TestAWrongScriptIsAClearError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"try":          "there is no verb",
		"buy 3a":       `"buy" is no verb`,
		"sell":         "sell needs more words",
		"sell xa":      `"x" is no number of units`,
		"sell 3a k l":  `["l"] is too much`,
		"sell 3a at 0": `"0" is no replica`,
		"later soon":   "invalid duration",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// item is the first that is asked for.
func (q Request) item() byte {
	if q.Lines == nil {
		return 0
	}
	return q.Lines[0].Item
}

// checkShop plays sequences on a shop.
func checkShop(
	t *testing.T, rules Rules, sequences int, wrong func(state, Request, outcome) outcome,
) *Failure {
	t.Helper()
	all := map[string]Rules{"": rules}
	p := Player{
		New:   func() Service { return &shop{rules: rules, state: newState(), wrong: wrong} },
		Rules: all, Patience: time.Minute,
	}
	can := Can{
		Rules: all, Time: true, Prune: rules.Keys != "", Restock: true, Cancel: true, Manner: true, Leave: true, Items: 2,
	}
	failed, err := p.Check(t.Context(), can, 1, sequences, 4)
	must.Succeed(t, err)
	return failed
}

func TestAServiceThatKeepsTheContractIsRight(t *testing.T) {
	t.Parallel()
	for _, rules := range []Rules{
		everything,
		{Store: "redis", Keys: "redis", Remaining: true, Behind: "mysql"},
		{Store: "redis", Remaining: true, Through: "mysql"},
		{Store: "slots", Keys: "mysql"},
		{Store: "mysql", Oversells: true, Remaining: true},
		{Store: "http", Keys: "http", Plain: true},
	} {
		if failed := checkShop(t, rules, 100, nil); failed != nil {
			t.Errorf("%+v\n%v", rules, failed)
		}
	}
}

// Each of them is found by sequences that nobody has written, and shown by at most six requests.
func TestAServiceThatBreaksTheContractIsConvicted(t *testing.T) {
	t.Parallel()
	rules := everything
	for name, wrong := range map[string]func(before state, q Request, o outcome) outcome{
		"a key is accepted for another count": func(before state, q Request, o outcome) outcome {
			if first, ok := before.keys["mysql "+q.Key]; ok && o.answer == "key reused" && first.answer != "" {
				o.answer = first.answer + ", replayed"
			}
			return o
		},
		"a cancellation puts back units of an old stock": func(_ state, q Request, o outcome) outcome {
			if q.Verb == Cancel && strings.HasPrefix(o.answer, "cancelled") && strings.HasSuffix(o.answer, "/0") {
				o.after.stock[place{"mysql", 'a'}]++
			}
			return o
		},
		"a key is forgotten after thirty seconds": func(_ state, q Request, o outcome) outcome {
			if q.Verb == Later {
				clear(o.after.keys)
			}
			return o
		},
		"a cancellation that came first is ignored": func(_ state, q Request, o outcome) outcome {
			if q.Verb == Cancel && o.answer == "never-sold" {
				delete(o.after.keys, "mysql "+q.Key)
			}
			return o
		},
		"an order loses its last line": func(_ state, q Request, o outcome) outcome {
			sold := o.after.keys["mysql "+q.Key].sold
			if n := len(sold); q.Verb == Order && n > 1 && !strings.Contains(o.answer, "replayed") {
				last := sold[n-1]
				o.after.stock[place{"mysql", last.item}] += last.count
			}
			return o
		},
		"an order that is cancelled gives back its first line": func(before state, q Request, o outcome) outcome {
			if sold := o.after.keys["mysql "+q.Key].sold; q.Verb == Cancel && len(sold) > 1 && q.Lines == nil &&
				!strings.Contains(o.answer, "replayed") {
				o.after.stock[place{"mysql", sold[1].item}] = before.stock[place{"mysql", sold[1].item}]
			}
			return o
		},
		"an expired reservation is confirmed": func(before state, q Request, o outcome) outcome {
			if q.Verb == Confirm && o.answer == "refused: expired" {
				return outcome{"confirmed", "", before}
			}
			return o
		},
		"a hold is refused before units of expired ones are back": func(before state, q Request, o outcome) outcome {
			units := before.stock[place{"mysql", q.item()}]
			if q.Verb == Hold && units < q.Lines[0].Count && strings.HasSuffix(o.answer, "remain") {
				return outcome{fmt.Sprintf("sold out at %d", units), "", before}
			}
			return o
		},
		"a replay is not marked": func(_ state, _ Request, o outcome) outcome {
			o.answer = strings.TrimSuffix(o.answer, ", replayed")
			return o
		},
		"a restock is counted twice": func(_ state, q Request, o outcome) outcome {
			if q.Verb == Restock && strings.HasSuffix(o.answer, "in stock") {
				o.after.stock[place{"mysql", q.Lines[0].Item}] += q.Lines[0].Count
			}
			return o
		},
		"more units are given back than were sold": func(_ state, q Request, o outcome) outcome {
			if q.Verb == Release && o.answer == "cancelled" {
				o.after.stock[place{"mysql", 'a'}]++
			}
			return o
		},
	} {
		failed := checkShop(t, rules, 400, wrong)
		if failed == nil {
			t.Errorf("%s: not found", name)
		} else if len(failed.Script) > 6 {
			t.Errorf("%s: shown by %d requests\n%v", name, len(failed.Script), failed)
		}
	}
}

// A plain service may refuse any request, as long as it changes nothing.
func TestAPlainServiceThatRefusesChangesNothing(t *testing.T) {
	t.Parallel()
	plain := Rules{Store: "mysql", Keys: "mysql", Plain: true}
	refuses := func(left int64) func(state, Request, outcome) outcome {
		return func(before state, q Request, o outcome) outcome {
			if q.Verb != Sell || q.Lines[0].Count != 2 {
				return o
			}
			after := before.clone()
			after.stock[place{"mysql", 'a'}] -= left
			return outcome{Refused, "", after}
		}
	}
	if failed := checkShop(t, plain, 50, refuses(0)); failed != nil {
		t.Errorf("a service that refuses some requests:\n%v", failed)
	}
	if checkShop(t, plain, 50, refuses(1)) == nil {
		t.Error("a service that takes a unit although it refuses is right")
	}
}

// A plain service may answer a key that was used for another request with its first answer, unless it says that it
// refuses them. It may never sell.
func TestAPlainServiceMayNotSellForAKeyThatWasUsed(t *testing.T) {
	t.Parallel()
	plain := Rules{Store: "mysql", Keys: "mysql", Plain: true}
	reused := func(before state, q Request) (record, bool) {
		first, ok := before.keys["mysql "+q.Key]
		return first, ok && q.Verb == Sell && len(first.sold) > 0 && !first.barred &&
			first.asked != change{Rules: plain, Request: q}.asked()
	}
	repeats := func(before state, q Request, o outcome) outcome {
		if first, ok := reused(before, q); ok {
			return outcome{first.answer, "", before}
		}
		return o
	}
	sells := func(before state, q Request, o outcome) outcome {
		if _, ok := reused(before, q); ok {
			q.Key = ""
			return plain.step(before, q)[0]
		}
		return o
	}
	if failed := checkShop(t, plain, 50, repeats); failed != nil {
		t.Errorf("a service that repeats its first answer:\n%v", failed)
	}
	if checkShop(t, plain, 50, sells) == nil {
		t.Error("a service that sells again is right")
	}
	plain.RefusesReuse = true
	if checkShop(t, plain, 50, repeats) == nil {
		t.Error("a service that says that it refuses, and does not, is right")
	}
}

// A request whose outcome is not known may have taken effect, or take effect later, once.
func TestAnUnknownOutcomeMayBeEither(t *testing.T) {
	t.Parallel()
	set, sell := Request{Verb: Set, Lines: []Line{{'a', 10}}}, Request{Verb: Sell, Lines: []Line{{'a', 3}}}
	inOneStep := everything
	inOneStep.Holds = false
	for left, right := range map[int64]bool{10: true, 7: true, 4: false, 9: false} {
		w := NewWorld(map[string]Rules{"": everything})
		must.Succeed(t, errors.Join(w.Answered(set, "10 in stock"), w.Answered(sell, Unknown)))
		if err := w.Found("mysql", 'a', left); (err == nil) != right {
			t.Errorf("%d units are left: %v", left, err)
		}
	}
	w := NewWorld(map[string]Rules{"": inOneStep})
	must.Succeed(t, errors.Join(w.Answered(set, "10 in stock"), w.Answered(sell, Unknown), w.Found("mysql", 'a', 10),
		w.Answered(sell, "7 remain"), w.Found("mysql", 'a', 4)))
	if w.Answered(sell, "4 remain") == nil {
		t.Error("a request took effect and did not")
	}
}

// A refusal is recorded after it was decided. If its client has hung up, others may come between.
func TestARefusalMayBeRecordedLater(t *testing.T) {
	t.Parallel()
	w := NewWorld(map[string]Rules{"": everything})
	script, err := Parse("set 4a\nleave sell 12a k\nset 20a\nlook k\nsell 12a k\nsell 12a k")
	must.Succeed(t, err)
	for i, answer := range []string{"4 in stock", Unknown, "20 in stock", "unknown sale", "sold out at 4, replayed"} {
		must.Succeed(t, w.Answered(script[i], answer))
	}
	if w.Answered(script[5], "8 remain") == nil {
		t.Error("a recorded refusal was forgotten at once")
	}
}

// A service that is busy all the time, or whose answers tell nothing, is neither right nor wrong.
func TestAServiceThatTellsNothingIsNotJudged(t *testing.T) {
	t.Parallel()
	all := map[string]Rules{"": everything}
	for _, test := range []struct {
		answer string
		every  int // of so many requests, one gets the answer
	}{{Busy, 1}, {Unknown, 1}, {Unknown, 8}} {
		p := Player{Rules: all, Patience: 20 * time.Millisecond, New: func() Service {
			asked := 0
			return &shop{rules: everything, state: newState(), wrong: func(before state, _ Request, o outcome) outcome {
				if asked++; asked%test.every == 0 {
					return outcome{test.answer, "", before}
				}
				return o
			}}
		}}
		failed, err := p.Check(t.Context(), Can{Rules: all, Items: 1}, 1, 2, 1)
		if failed != nil || err == nil && p.Proves() == nil {
			t.Errorf("%+v: %v, %v, want not judged", test, failed, err)
		}
	}
}

// A shortened script fails in the same way as the first, and twice.
func TestAScriptThatFailsOnceIsNotShortenedByChance(t *testing.T) {
	t.Parallel()
	plays := 0
	p := Player{Rules: map[string]Rules{"": everything}, Patience: time.Minute, New: func() Service {
		plays++
		lies := plays == 1 || plays%2 == 0 // never twice in a row after the first
		return &shop{rules: everything, state: newState(), wrong: func(_ state, q Request, o outcome) outcome {
			if lies && q.Verb == Sell {
				o.answer = "0 remain"
			}
			return o
		}}
	}}
	script, err := Parse("set 10a\nset 10b\nsell 3a")
	must.Succeed(t, err)
	failed, err := p.Play(t.Context(), script)
	must.Succeed(t, err)
	if failed = p.Shrink(t.Context(), failed); !slices.EqualFunc(failed.Script, script, func(a, b Request) bool {
		return a.String() == b.String()
	}) {
		t.Errorf("a script that fails at random was shortened to\n%v", failed)
	}
}

// The rows of the tables in the documentation: what came before, a request, its answer, and the cell that says so.
var documented = []struct{ row, before, request, answer, cell string }{
	{"held", "hold 3a x", "confirm x", "confirmed", "200, confirmed"},
	{"held", "hold 3a x", "release x", "cancelled", "200, cancelled: the units are back"},
	{"confirmed", "hold 3a x\nconfirm x", "confirm x", "confirmed", "200, confirmed"},
	{"confirmed", "hold 3a x\nconfirm x", "release x", "refused: confirmed", "409 `reservation-confirmed`"},
	{"cancelled", "hold 3a x\nrelease x", "confirm x", "refused: cancelled", "409 `reservation-cancelled`"},
	{"cancelled", "hold 3a x\nrelease x", "release x", "cancelled", "200, cancelled"},
	{"expired", "hold 3a x\nlater 2m", "confirm x", "refused: expired", "409 `reservation-expired`"},
	{"expired", "hold 3a x\nlater 2m", "release x", "expired", "200, expired: the units are back"},
	{"unknown,", "", "confirm x", "unknown reservation", "404 `unknown-reservation`"},
	{"unknown,", "", "release x", "unknown reservation", "404 `unknown-reservation`"},

	{"succeeded,", "sell 3a k", "sell 3a k", "7 remain, replayed", "gets the same answer, with `Idempotency-Replayed"},
	{"succeeded,", "sell 11a k", "sell 11a k", "sold out at 10, replayed", "gets the same answer"},
	{"asked for something else", "sell 3a k", "sell 2a k", "key reused", "gets 422 `idempotency-key-reused`"},
	{"was [cancelled]", "sell 3a k\ncancel k", "sell 3a k", "cancelled, replayed", "gets 409 `cancelled`"},

	{"sold |", "sell 3a k", "cancel k", "cancelled 3a/3/3", "200, `cancelled`: the units are back"},
	{"sold |", "sell 3a k", "cancel k 1", "sold 3a/1/1", "200, `sold`"},
	{"sold fewer units", "sell 3a k", "cancel k 4", "more than sold", "422 `more-than-sold`"},
	{"was refused |", "sell 11a k", "cancel k", "never-sold", "200, `never-sold`"},
	{"was refused |", "sell 11a k", "cancel k 1", "more than sold", "422 `more-than-sold`"},
	{"is not known", "", "cancel k", "never-sold", "200, `never-sold`"},
	{"is not known", "", "cancel k 1", "unknown sale", "404 `unknown-sale`"},
	{"was cancelled |", "sell 3a k\ncancel k", "cancel k", "cancelled 3a/3/3, replayed", "200, as before"},
	{"was cancelled |", "sell 3a k\ncancel k", "cancel k 1", "cancelled 3a/3/3, replayed", "200, as before"},
}

func TestTheTablesOfTheDocumentationSayWhatTheModelSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/http-api.md")
	must.Succeed(t, err)
	lines := strings.Split(string(text), "\n")
	for _, d := range documented {
		script, err := Parse("set 10a\n" + d.before + "\n" + d.request)
		must.Succeed(t, err)
		on, got := &shop{rules: everything, state: newState()}, ""
		for _, q := range script {
			got, _ = on.Ask(t.Context(), q)
		}
		if got != d.answer {
			t.Errorf("%s: %s is answered %q, want %q", d.row, d.request, got, d.answer)
		}
		says := func(line string) bool {
			return strings.HasPrefix(line, "| "+d.row) && strings.Contains(line, "| "+d.cell)
		}
		if !slices.ContainsFunc(lines, says) {
			t.Errorf("no row %q of http-api.md has a cell %q", d.row, d.cell)
		}
	}
}
