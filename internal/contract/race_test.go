package contract

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

var keyed = Rules{Store: "mysql", Keys: "mysql", Remaining: true, Orders: true}

// calls reads calls: a request, its answer, and two letters. "cf" says that it was sent at c and answered at f.
func calls(t *testing.T, lines ...string) (all []Call) {
	t.Helper()
	for _, line := range lines {
		words := strings.Split(line, " | ")
		s, err := Parse(words[0])
		must.Succeed(t, err)
		all = append(all, Call{
			Request: s[0], Client: "A", Answer: words[1], Sent: int64(words[2][0]), Received: int64(words[2][1]),
		})
	}
	return all
}

func TestSomeOrderOfTheCallsExplainsTheAnswers(t *testing.T) {
	t.Parallel()
	const set = "set 10a | 10 in stock | ab"
	for _, c := range []struct {
		name  string
		calls []string
		left  int64
		wrong string // that stands in the error; empty: the answers are explained
	}{
		{"the later one is served first", []string{set, "sell 1a | 7 remain | cf", "sell 2a | 8 remain | de"}, 7, ""},
		{"an answer came before the next request", []string{set, "sell 1a | 7 remain | cd", "sell 2a | 8 remain | ef"}, 7,
			`answer "7 remain", want "9 remain"`},
		{"a unit is lost", []string{set, "sell 1a | 9 remain | cd"}, 8, `stock of a in mysql "8", want "9"`},
		{"an unknown request took effect", []string{set, "sell 1a | unknown | cd"}, 9, ""},
		{"or none", []string{set, "sell 1a | unknown | cd"}, 10, ""},
		{"or later", []string{set, "sell 1a | unknown | cd", "sell 2a | 8 remain | ef", "sell 2a | 5 remain | gh"}, 5, ""},
		{"not twice", []string{set, "sell 1a | unknown | cd"}, 8, "stock of a"},
		{"not before it was sent", []string{set, "sell 2a | 7 remain | cd", "sell 1a | unknown | ef"}, 7, `"8 remain"`},
		{"a busy one has changed nothing", []string{set, "sell 1a | busy | cd"}, 9, "stock of a"},
		{"cancelled while it is sold", []string{set, "sell 1a k | 9 remain | cf", "cancel k | never-sold | de"}, 9,
			`want "cancelled 1a/1/1"`},
		{"sold, then cancelled", []string{set, "sell 1a k | 9 remain | cf", "cancel k | cancelled 1a/1/1 | de"}, 10, ""},
		{"sold, and told as refused", []string{set, "sell 1a k | 9 remain | cd", "look k | refused | ef"}, 9,
			"want \"sold 1a"},
		{"two unknown ones", []string{set, "sell 1a | unknown | cd", "sell 2a | unknown | cd"}, 7, ""},
		{"an order is told of both items", []string{set, "set 5b | 5 in stock | cd", "order 1a,1b k | 9 4 remain | ef",
			"order 1a,1b k | 9 4 remain, replayed | gh"}, 9, ""},
		{"a refusal is recorded, and the client is told busy", []string{set, "sell 11a k | busy | cd",
			"sell 2a k | key reused | ef"}, 10, ""},
		{"a sale is not", []string{set, "sell 1a k | busy | cd", "sell 2a k | key reused | ef"}, 10, "key reused"},
		{"sold to both", []string{set, "sell 1a k | 9 remain | cf", "sell 1a k | 8 remain | de"}, 8, "replayed"},
	} {
		order, err := Explain(map[string]Rules{"": keyed}, calls(t, c.calls...), []Stock{{"mysql", 'a', c.left}})
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: %v after %q", c.name, err, order)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, want %s", c.name, err, c.wrong)
		}
	}
}

// A strategy with reservations sells in two steps. If the client does not know what became of it, its units may have
// been held meanwhile.
func TestASaleInTwoStepsMayHoldUnitsForAWhile(t *testing.T) {
	t.Parallel()
	reserves := keyed
	reserves.Holds = true
	const set = "set 2a | 2 in stock | ab"
	for _, c := range []struct {
		name  string
		calls []string
		left  int64
		right bool
	}{
		{"busy", []string{set, "sell 2a | busy | cg", "sell 1a | sold out at 0 | de"}, 2, true},
		{"unknown, not sold", []string{set, "sell 2a | unknown | cg", "sell 1a | sold out at 0 | de"}, 2, true},
		{"unknown, sold", []string{set, "sell 2a | unknown | cg", "sell 1a | sold out at 0 | de"}, 0, true},
		{"busy, but sold", []string{set, "sell 2a | busy | cg", "later 4m |  | hi",
			"hold 9a x | sold out at 0 | jk"}, 0, false},
		{"sold in part", []string{set, "sell 2a | unknown | cg"}, 1, false},
	} {
		order, err := Explain(map[string]Rules{"": reserves}, calls(t, c.calls...), []Stock{{"mysql", 'a', c.left}})
		if (err == nil) != c.right {
			t.Errorf("%s: %v after %q", c.name, err, order)
		}
	}
}

func TestARaceIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	can := Can{Rules: map[string]Rules{"": keyed}, Cancel: true, Restock: true, Known: true, Items: 2}
	for seed := range uint64(200) {
		r := can.Race(rand.New(rand.NewPCG(seed, 0)), 2)
		read, err := ParseRace(r.String())
		if err != nil || read.String() != r.String() || len(r.Clients) != 2 {
			t.Fatalf("%q is read as %q: %v", r, read, err)
		}
		for _, simpler := range r.Simpler() {
			if simpler.String() == r.String() {
				t.Fatalf("%q is not simpler than itself", r)
			}
		}
		if slices.ContainsFunc(slices.Concat(r.Clients...), func(q Request) bool { return q.Verb == Set }) {
			t.Fatalf("%q sets the stock while others sell", r)
		}
	}
	for _, text := range []string{
		"set 10a / ", "set 10a / later 5m", "set 10a / leave sell 1a k", "sell", "set 10a / set 9a", "set 10a / sell 1a,",
		"set 10 / sell 1a", "set 10a / sell 0a", "set 10a / sell 1a,1b", "set 10a / sell 1a by update",
		"set 10a; prune / sell 1a",
		"set 10a / hold 1a x / confirm x", "set 10a / confirm x; hold 1a x", "set 10a / sell 1a at 2",
		"set 10a / hold 1a x for 2s", "set 10a / hold 1a x for 1h",
	} {
		if _, err := ParseRace(text); err == nil {
			t.Errorf("%q is no race, and was read", text)
		}
	}
}
