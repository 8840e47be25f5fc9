package main

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"stock/loadtest/internal/browsertest"
)

func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t)
	page := browsertest.Open(t, d.Console)
	page.WaitFor(`document.querySelectorAll(".replica").length === 2`)

	// Run: none loses sales.
	page.Click("#run")
	page.WaitFor(`!document.querySelector("#tiles").hidden && document.querySelectorAll(".inside.overlap").length > 1`)
	page.WaitFor(`document.querySelector("#gone .lost") !== null`)
	page.MustFit()
	page.WaitFor(`!document.querySelector("#run-verdict").hidden`)
	const wrong = `[...document.querySelectorAll("#rows tr")].some(row =>
		row.textContent.startsWith("none") && row.querySelector(".word.bad")?.textContent === "wrong")`
	if !browsertest.Eval[bool](page, wrong) {
		t.Errorf("the verdicts are %q, want that none is wrong", page.Text("#rows"))
	}

	lookAtSandboxedRun(t, browsertest.Eval[string](page, `document.querySelector("#run-verdict a").href`))

	// Step through a story, with the keyboard alone: the tabs, the form, and the button that has the focus then.
	page.Do(chromedp.Focus(chromedp.CSS("#tab-run")))
	page.Press(kb.ArrowRight)
	page.WaitFor(`!document.querySelector("#panel-story").hidden && document.activeElement.id === "tab-story"`)
	choose(page, "#scenario", "late-write")
	choose(page, "#strategy", "lock-redis-lua")
	page.Do(chromedp.Focus(chromedp.CSS("#story-start")))
	page.Press(kb.Enter)
	page.WaitFor(`document.activeElement.id === "next"`)
	for steps := 1; steps <= 2; steps++ {
		page.WaitFor(`document.querySelector("#next").getAttribute("aria-disabled") === "false"`)
		page.MustFit()
		page.Press(kb.Enter)
	}
	page.WaitFor(`document.querySelectorAll("#steps li").length >= 3`)
	page.Click("#steps li:first-child button")
	page.WaitFor(`document.querySelector("#scene-title").textContent.startsWith("In the servers at")`)
	page.Click("#finish")
	page.WaitFor(`document.querySelector("#story-outcome .word.bad")?.textContent === "unsafe"`)

	lookAtSandboxedStory(t, browsertest.Eval[string](page, `document.querySelector("#story-outcome a").href`))

	// A tab that is opened later shows the same.
	other := browsertest.Open(t, d.Console+"#story")
	other.WaitFor(`document.querySelector("#story-outcome .word.bad")?.textContent === "unsafe"`)

	// Break a replica and mend it.
	page.Click("#tab-break")
	// What has the focus, or is about to be clicked, stays, whatever the server sends meanwhile.
	browsertest.Eval[bool](page, `(() => {
		window.halt = document.querySelector('[aria-label="Stop replica-2"]');
		halt.focus();
		return true;
	})()`)
	for _, want := range []string{"Continue", "Stop"} {
		page.Press(kb.Enter)
		page.WaitFor(`document.activeElement === halt && halt.textContent === "` + want + `"`)
	}
	const state = `document.querySelectorAll(".replica")[1].querySelector(".word").textContent`
	page.Click(`[aria-label="Kill replica-2"]`)
	page.WaitFor(state + ` === "dead"`)
	page.WaitFor(`document.activeElement.textContent === "Kill"`)
	other.WaitFor(state + ` === "dead"`)
	page.Click(`[aria-label="Start again replica-2"]`)
	page.WaitFor(state + ` === "running"`)
	page.Click(`#stock-form button`)
	page.WaitFor(`document.querySelector("#contents dd.big").textContent === "100"`)
	page.Click(`#sale-form button`)
	page.WaitFor(`document.querySelector("#sales li")?.textContent.includes("99 remain")`)
	choose(page, `#sale-form [name=key]`, "order-1")
	page.Click(`#sale-form button`)
	page.WaitFor(`document.querySelector("#sales li").textContent.includes("98 remain")`)
	page.Click(`#sale-form [name=cancel]`)
	page.WaitFor(`document.querySelector("#sales li").textContent.includes("1 of 1 units cancelled")`)
	page.Size(375, 800)
	for _, tab := range []string{"#tab-run", "#tab-story", "#tab-explore", "#tab-break"} {
		page.Click(tab)
		page.MustFit()
	}
	if browsertest.Eval[bool](page, `document.body.textContent.includes("[object")`) {
		t.Error("the page shows a value that is no text")
	}
	// The page says why something was refused. A real refusal would be an error in the console of the browser.
	browsertest.Eval[bool](page, `(() => {
		window.fetch = async () => new Response('{"error":"replica-2 is stopped"}', {status: 409});
		return true;
	})()`)
	page.Click(`[aria-label="Stop replica-2"]`)
	page.WaitFor(`document.querySelector("#problem").textContent === "Replica-2 is stopped."`)
	page.Click(`[aria-label="Kill replica-2"]`)

	t.Run("leaves out what is not known, and shows a refusal", func(t *testing.T) { lookAtGivenStates(t, d.Console) })
	for _, dark := range []bool{false, true} {
		other.Dark(dark)
		for _, tab := range []string{"#tab-run", "#tab-story", "#tab-explore", "#tab-break"} {
			other.Click(tab)
			other.MustBeAccessible()
		}
	}
}

// choose chooses an option of a list.
func choose(page *browsertest.Page, list, value string) {
	browsertest.Eval[bool](page, `(() => { const e = document.querySelector("`+list+`"); e.value = "`+value+
		`"; e.dispatchEvent(new Event("change")); return true })()`)
}

// lookAtAHeldSale holds a sale and releases it.
func lookAtAHeldSale(t *testing.T, address string) {
	t.Helper()
	page := browsertest.Open(t, address)
	page.WaitFor(`document.querySelectorAll(".replica").length === 2`)
	page.Click("#tab-break")
	page.Click(`#stock-form button`)
	page.WaitFor(`document.querySelector("#contents dd.big").textContent === "100"`)
	choose(page, `#sale-form select[name=hold]`, "write")
	page.Click(`#sale-form button`)
	page.WaitFor(`document.querySelector("#held code.sent")?.textContent.includes("SET stock = 99")`)
	page.MustBeAccessible()
	page.MustFit()
	page.Size(375, 800)
	page.MustFit()
	page.Size(1400, 900)
	page.Click(`#held button`)
	page.WaitFor(`document.activeElement.id === "held-title"`)
	page.WaitFor(`document.querySelector("#sales li")?.textContent.includes("99 remain")`)
}

// lookAtGivenStates has the page show states that are hard to bring about.
func lookAtGivenStates(t *testing.T, address string) {
	t.Helper()
	p := browsertest.Open(t, address)
	p.WaitFor(`document.querySelectorAll(".replica").length === 2`)
	p.Do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: `window.EventSource = class { constructor() { window.events = this; } }`,
		})
		return chromedp.Void{}, err
	}, chromedp.Reload())
	p.WaitFor(`window.events?.onmessage`)
	browsertest.Eval[bool](p, `fetch("/state").then((r) => r.json()).then((state) => {
		window.show = (change) => { change(state); events.onmessage({ data: JSON.stringify(state) }); return true; };
		return show(() => {});
	})`)

	if got := p.Text("#rows-title"); got != "Judged" {
		t.Errorf("after the run, the table is called %q", got)
	}
	if got := p.Text("#rows .word.base"); got != "baseline" {
		t.Errorf("the baseline is called %q", got)
	}

	// A replica that could not be started can be started again.
	browsertest.Eval[bool](p, `show((state) => {
		Object.assign(state.lab.replicas[1], { state: "dead", pid: 0 });
		window.fetch = () => new Promise((answer) => { window.answer = answer; });
	})`)
	if card := p.Text(".replica:nth-child(2)"); strings.Contains(card, "pid") {
		t.Errorf("a dead replica has a pid: %s", card)
	}
	p.Click("#tab-break")
	p.Click(`[aria-label="Start again replica-2"]`)
	p.WaitFor(`document.activeElement.textContent === "Starting…"`)
	browsertest.Eval[bool](p, `answer(new Response('{"error":"the port is taken"}', { status: 500 })) || true`)
	p.WaitFor(`document.activeElement.textContent === "Start again"`)

	// A row keeps its button while its text changes. When it goes, the heading gets the focus.
	const locks = `(locks) => show((state) => { state.lab.contents.locks = locks.map((ttl_ms) =>
		({ server: "redis", key: "lock-redis-lua:{1}", owner: "x", ttl_ms, waiting: [] })); })`
	browsertest.Eval[bool](p, `(window.locks = `+locks+`)([9000])`)
	browsertest.Eval[bool](p, `(window.kept = document.querySelector("#locks button")).focus() || locks([8000])`)
	p.WaitFor(`document.activeElement === kept && document.querySelector("#locks").textContent.includes("8\u00a0s")`)
	browsertest.Eval[bool](p, `locks([-1])`)
	if got := p.Text("#locks .row div"); got != "lock-redis-lua:{1} in redis: held, without a lease" {
		t.Errorf("a lock without a lease is shown as %q", got)
	}
	browsertest.Eval[bool](p, `locks([])`)
	p.WaitFor(`document.activeElement.id === "locks-title" && !document.querySelector("#no-locks").hidden`)
}

// lookAtSandboxedRun uses the report of a run of none, as the console serves it.
func lookAtSandboxedRun(t *testing.T, address string) {
	t.Helper()
	page := browsertest.Open(t, address)
	mustBeSandboxed(t, page)
	const first = `document.querySelector("tr.strategy code").textContent`
	page.WaitFor(first)
	page.Click("thead button")
	page.WaitFor(`document.querySelector("thead th").ariaSort === "ascending"`)
	page.Click(`[data-verdict="bad"] .opener`)
	page.WaitFor(`document.querySelector(".opened .timeline svg")`)
}

// lookAtSandboxedStory uses the report of a story, as the console serves it.
func lookAtSandboxedStory(t *testing.T, address string) {
	t.Helper()
	page := browsertest.Open(t, address+"#late-write/lock-redis-lua")
	mustBeSandboxed(t, page)
	page.WaitFor(`document.getElementById("story").open && document.querySelector("#story .timeline svg")`)
	// The page uses the clipboard, or where that is not permitted, a selection.
	browsertest.Eval[bool](page, `(() => {
		document.addEventListener("copy", () => { window.copied = getSelection().toString(); });
		const write = Clipboard.prototype.writeText;
		Clipboard.prototype.writeText = async function(text) { await write.call(this, text); window.copied = text; };
		return true;
	})()`)
	page.Click("#story .replay button")
	page.WaitFor(`window.copied === document.querySelector("#story .replay code").textContent`)
	page.Press(kb.Escape)
	page.WaitFor(`!document.getElementById("story").open`)
	page.Click("[data-story]")
	page.WaitFor(`location.hash === "#late-write/lock-redis-lua"`)
}

// mustBeSandboxed fails the test unless the page has an origin of its own.
func mustBeSandboxed(t *testing.T, page *browsertest.Page) {
	t.Helper()
	if origin := browsertest.Eval[string](page, "self.origin"); origin != "null" {
		t.Errorf("the origin of a report is %q, want one of its own", origin)
	}
}
