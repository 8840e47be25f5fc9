package script

import (
	"strings"
	"syscall"
	"testing"

	"stock/internal/must"
)

// Whatever takes the memory, the interpreter ends before it has much.
func TestAScriptGetsNoMoreMemoryThanItMayUse(t *testing.T) {
	t.Parallel()
	const most = 256 // MiB: twice what docs/scripts.md says, for the interpreter itself and the race detector
	for name, body := range map[string]string{
		"text doubled":      "s = 'x'\n    for _ in range(28):\n        s += s",
		"list doubled":      "l = [0]\n    for _ in range(28):\n        l += l",
		"number squared":    "n = 1 << 500\n    for _ in range(24):\n        n *= n",
		"repeated text":     "s = 'x' * 1000000000",
		"repeated list":     "l = [0] * 1000000000",
		"repeated tuple":    "l = (0,) * 500000000",
		"join":              "s = ('x' * 30000).join(['x'] * 30000)",
		"replace":           "s = ('x' * 30000).replace('x', 'x' * 30000)",
		"format":            "s = ('{0}' * 30000).format('x' * 30000)",
		"percent":           "s = '%s' * 30000 % (('x' * 30000,) * 30000)",
		"range in a list":   "l = list(range(1000000000))",
		"lists in lists":    "l = ['x']\n    for _ in range(40):\n        l = [l, l]\n    s = str(l)",
		"sent":              "l = ['x' * 1000000]\n    for _ in range(40):\n        l = [l, l]\n    sql(l)",
		"appended":          "l = []\n    for n in range(200000):\n        l.append('%d' % n * 1000)",
		"dict":              "d = {n: 'x' * n for n in range(100000)}",
		"error":             "{}['x' * 900000000]",
		"arguments":         "def f(*a): return f\n    f(*([0] * 20000000))",
		"returned":          "return 'x' * 1000000000",
		"printed":           "print('x' * 1000000000)",
		"split into pieces": "l = ('x ' * 20000000).split(' ')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, _, err := interpret(source{"shop.star", []byte("def buy():\n    " + body), 2, words})
			must.Succeed(t, err)
			_, err = i.Run(t.Context(), "buy", Env{})
			i.Close()
			const want = "shop.star:1:1: it needs more than 64 MiB of memory"
			sends := name == "sent"
			if err == nil || !sends && err.Error() != want || sends && !strings.Contains(err.Error(), "sql: it sends") {
				t.Errorf("%v, want %s", err, want)
			}
			if took := i.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10; took > most {
				t.Errorf("the interpreter took %d MiB, more than %d", took, most)
			}
		})
	}
}

func TestTheTopOfAScriptGetsNoMoreMemoryThanItMayUse(t *testing.T) {
	t.Parallel()
	_, err := Load("shop.star", []byte("stock = len('x' * 900000000)\ndef buy(): pass"), 2, words)
	if err == nil || err.Error() != "shop.star:1:1: it needs more than 64 MiB of memory" {
		t.Error(err)
	}
}
