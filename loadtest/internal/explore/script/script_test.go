package script

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"stock/internal/must"
)

var words = Words{Faults: []string{"lease-ends", "lost-reply"}, Kinds: []string{"right", "lost update"}}

func TestMain(m *testing.M) {
	Interpret()
	os.Exit(m.Run())
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s, err := Load("shop.star", []byte(`# Sells too much.
# Bug: none.
isolation = "read committed"
stock = 2
faults = ["lease-ends"]
expect = {"lease-ends": "lost update"}
def setup(): pass
def check(sold): pass
def buy(count, request): pass
def look(): pass
sessions = [buy, look, buy]
`), 2, words)
	must.Succeed(t, err)
	s.source = source{}
	want := &Script{
		File: "shop.star", Title: "Sells too much. Bug: none.", Isolation: "READ COMMITTED", Stock: 2,
		Faults: []string{"lease-ends"}, Expect: map[string]string{"lease-ends": "lost update"},
		Sessions: []string{"buy", "look", "buy"}, Setup: true, Check: true,
		Params: map[string][]string{"buy": {"count", "request"}, "check": {"sold"}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"def buy(): pass": 2, "requests = 3\ndef buy(): pass": 3} {
		if s, err := Load("shop.star", []byte(text), 2, words); err != nil || len(s.Sessions) != want {
			t.Errorf("%q: %d sessions, %v", text, len(s.Sessions), err)
		}
	}
}

func TestMistakesAreToldWithTheirPlace(t *testing.T) {
	t.Parallel()
	const buys = "\ndef buy(): pass"
	for _, c := range []struct{ text, want string }{
		{"", "shop.star:1:1: there is no session"},
		{"def sell(): pass", "shop.star:1:1: there is no session"},
		{"buy = 1", "shop.star:1:1: there is no session"},
		{"def buy(:\n  pass", "shop.star:1:10: got ':'"},
		{"def buy():\n    sqll('x')\n    nonsense()", "shop.star:2:5: undefined: sqll\nshop.star:3:5: undefined: nonsense"},
		{"def buy():\npass", "shop.star:2:5: got pass, want indent"},
		{"import os", "shop.star:1:1: "},
		{"x = 'a", "shop.star:1:5: unexpected EOF in string"},
		{"x = 1 // 0" + buys, "shop.star:1:7: in <toplevel>: floored division by zero"},
		{"sql('SELECT 1')" + buys, "shop.star:1:4: in <toplevel>: sql can only be called in a function"},
		{"x = key('a')" + buys, "shop.star:1:8: in <toplevel>: key can only be called in a function"},
		{"load('a.star', 'b')" + buys, "shop.star:1:1: in <toplevel>: cannot load a.star: a script is one file"},
		{"isolation = 'CHAOS'" + buys, "shop.star:1:1: isolation: must be one of READ UNCOMMITTED"},
		{"\n  \nstock = -1" + buys, "shop.star:3:1: stock: must be a number of units"},
		{"requests = 4" + buys, "shop.star:1:1: requests: must be 1, 2 or 3"},
		{"faults = 'lease-ends'" + buys, "shop.star:1:1: faults: must be a list of different names: lease-ends, lost-reply"},
		{"faults = ['meteor']" + buys, `shop.star:1:1: faults: there is no fault "meteor", only lease-ends`},
		{"expect = 'fine'" + buys, `shop.star:1:1: expect: there is no result "fine", only right, lost update`},
		{"faults = ['lease-ends'] * 3" + buys, "shop.star:1:1: faults: must be a list of different names"},
		{"expect = 'x' * 2000\ndef check(): pass" + buys, "shop.star:1:1: expect: is longer than 1024 bytes"},
		{"expect = {'lease-ends': 'right'}" + buys, `shop.star:1:1: expect: "lease-ends" cannot strike`},
		{"expect = {'': 5}" + buys, "shop.star:1:1: expect: there is no result 5"},
		{"def buy(number): pass", "shop.star:1:9: buy cannot have a parameter number, only count, who, request"},
		{"def check(all): pass" + buys, "shop.star:1:11: check cannot have a parameter all, only sold, unknown, refused"},
		{"def setup(x): pass" + buys, "shop.star:1:11: setup cannot have a parameter x, only none"},
		{"stock = 5\nrequest = 3" + buys, `shop.star:2:1: nothing uses request: did you mean "requests"?`},
		{"def buy(): pass\ndef chek(sold): return False", `shop.star:2:5: nothing uses chek: did you mean "check"?`},
		{"x = 1; y = 2\ndef buy(): return y", "shop.star:1:1: nothing uses x; what the explorer uses are stock, requests"},
		{"setup = 5" + buys, "shop.star:1:1: setup: must be a function, not int"},
		{"sessions = []", "shop.star:1:1: sessions: must be a list of one, two or three functions"},
		{"sessions = ['buy']" + buys, `shop.star:1:1: sessions: "buy" is not a function of this file`},
		{"def buy(): pass\nsessions = [buy] * 4", "shop.star:2:1: sessions: must be a list of one, two or three"},
		{"while True:\n    pass" + buys, "shop.star:1:1: in <toplevel>: Starlark computation cancelled: it loops"},
		{"def buy():\n    buy()\nx = buy()", "shop.star:2:5: in buy: function buy called recursively"},
		{strings.Repeat("#", mostBytes+1), "shop.star:1:1: it is longer than 65536 bytes"},
		{"x = " + strings.Repeat("(", 60_000), "shop.star:1:82: excessive nesting"},
		{"\x00\xff\xfe", "shop.star:1:1: "},
	} {
		_, err := Load("shop.star", []byte(c.text), 2, words)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %q", c.text, err, c.want)
		}
	}
}

// Whatever is left of a script, it is read or refused with its place.
func TestRubbish(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../scripts/*.star")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := Words{Faults: words.Faults}
	for range 3000 {
		text, err := os.ReadFile(files[random.IntN(len(files))])
		must.Succeed(t, err)
		for range random.IntN(4) + 1 {
			at := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text = text[:at+1]
			case 1:
				text[at] = byte(random.IntN(256))
			default:
				text = append(text[:at:at], text[min(at+random.IntN(20), len(text)):]...)
			}
			if len(text) == 0 {
				break
			}
		}
		if _, err := load(source{"shop.star", text, 2, all}); err != nil && !strings.HasPrefix(err.Error(), "shop.star:") {
			t.Fatalf("%q: %v", text, err)
		}
	}
}
