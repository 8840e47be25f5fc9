package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/browsertest"
)

func TestConsoleExplores(t *testing.T) {
	t.Parallel()
	serverstest.NeedAll(t)
	d, _, _ := up(t)
	p := browsertest.Open(t, d.Console)
	p.WaitFor(loaded)
	p.Click("#tab-explore")
	mustLookRight(p)
	exploreAScript(t, p)
	mustLookRight(p)
	stopAnExploration(t, p, d.Console)
}

// exploreAScript changes a line of a script of the gallery, and runs it.
func exploreAScript(t *testing.T, p *browsertest.Page) {
	t.Helper()
	outcome := func(want string) {
		t.Helper()
		p.WaitFor(`document.querySelector("#explored-outcome .word")?.textContent === "` + want + `"`)
	}
	p.Click("#script-run")
	outcome("No claim is refuted")
	if got := p.Text("#explore-command code"); !strings.HasSuffix(got, " loadtest/scripts/read-modify-write.star") {
		t.Errorf("the command is %q", got)
	}
	change := func(of, to string) {
		browsertest.Eval[bool](p, `(() => { const e = document.querySelector("#script-form textarea");
			e.value = e.value.replace(`+of+`, `+to+`); return true; })()`)
	}
	change(`/^expect.*$/m`, `'expect = "right"'`) // it promises what it does not keep
	p.Click("#script-run")
	outcome("A claim is refuted")
	if got := p.Text("#explored-cells"); !strings.Contains(got, "lost update") || !strings.Contains(got, "REFUTED") {
		t.Errorf("the schedules led to %q", got)
	}
	if got := p.Text("#explored-title"); got != "mine.star" {
		t.Errorf("a script that was changed is called %q", got)
	}
}

// stopAnExploration begins with a strategy that takes more than a minute, and stops when something was found.
func stopAnExploration(t *testing.T, p *browsertest.Page, address string) {
	t.Helper()
	for field, value := range map[string]string{"strategy": "units", "preemptions": "3", "faults": "1"} {
		p.Do(chromedp.SetValue(chromedp.CSS(`#explore-form [name="`+field+`"]`), value))
	}
	p.Click("#explore")
	p.WaitFor(`document.querySelector("#explored-title").textContent.startsWith("units")`)
	p.WaitFor(`/[1-9]/.test(document.querySelector("#explored-phase").textContent) &&
		document.querySelector("#explored-cells th")`)
	tab := watch(t, address)
	tab.post(http.StatusConflict, "explore", `{"strategy":"none"}`)
	tab.post(http.StatusConflict, "run", runOf("none", 10))
	p.Click("#explore-cancel")
	p.WaitFor(`document.querySelector("#explored-outcome .word")?.textContent === "Stopped"`)
	p.WaitFor(`document.querySelector("#explore").getAttribute("aria-disabled") === "false"`)
	for body, want := range map[string]string{
		`{"strategy":"noop"}`:                          "no strategy that can be explored",
		`{"strategy":"update","preemptions":9}`:        "9 preemptions",
		`{"strategy":"update","faults":2}`:             "2 faults",
		`{"script":"def buy(:","file":"update.star"}`:  "update.star:1:",
		`{"script":"x = 1","file":"../../etc/passwd"}`: "mine.star",
		`{"script":"x = len('x' * 900000000)"}`:        "mine.star:1:1: it needs more than 64 MiB of memory",
	} {
		if got := tab.post(http.StatusBadRequest, "explore", body); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", body, got, want)
		}
	}
}
