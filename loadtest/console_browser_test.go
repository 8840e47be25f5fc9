package main

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/browsertest"
)

// loaded is true once the page shows a state.
const loaded = `document.body.dataset.busy !== undefined`

func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	serverstest.NeedAll(t)
	d, _, _ := up(t)
	page := browsertest.Open(t, d.Console)
	page.WaitFor(loaded)

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

	// Step through a fault, with the keyboard alone: the tabs, the form, and the button that has the focus then.
	page.Do(chromedp.Focus(chromedp.CSS("#tab-run")))
	page.Press(kb.ArrowRight)
	page.WaitFor(`!document.querySelector("#panel-fault").hidden && document.activeElement.id === "tab-fault"`)
	choose(page, "#scenario", "late-write")
	choose(page, "#strategy", "lock-redis-lua")
	page.Do(chromedp.Focus(chromedp.CSS("#fault-start")))
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
	page.WaitFor(`document.querySelector("#fault-outcome .word.bad")?.textContent === "unsafe"`)

	lookAtSandboxedFault(t, browsertest.Eval[string](page, `document.querySelector("#fault-outcome a").href`))

	// A tab that is opened later shows the same.
	other := browsertest.Open(t, d.Console+"#fault")
	other.WaitFor(`document.querySelector("#fault-outcome .word.bad")?.textContent === "unsafe"`)

	page.Size(375, 800)
	for _, tab := range []string{"#tab-run", "#tab-fault", "#tab-explore"} {
		page.Click(tab)
		page.MustFit()
	}
	if browsertest.Eval[bool](page, `document.body.textContent.includes("[object")`) {
		t.Error("the page shows a value that is no text")
	}
	// The page says why something was refused. A real refusal would be an error in the console of the browser.
	browsertest.Eval[bool](page, `(() => {
		window.fetch = async () => new Response('{"error":"replica-2 is dead"}', {status: 409});
		return true;
	})()`)
	page.Click("#tab-run")
	page.Click("#run")
	page.WaitFor(`document.querySelector("#problem").textContent === "Replica-2 is dead."`)

	t.Run("leaves out what is not known, and shows a refusal", func(t *testing.T) { lookAtGivenStates(t, d.Console) })
	for _, dark := range []bool{false, true} {
		other.Dark(dark)
		for _, tab := range []string{"#tab-run", "#tab-fault", "#tab-explore"} {
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

// lookAtGivenStates has the page show states that are hard to bring about.
func lookAtGivenStates(t *testing.T, address string) {
	t.Helper()
	p := browsertest.Open(t, address)
	p.WaitFor(loaded)
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

	// A row keeps its button while its text changes.
	p.Click("#tab-explore")
	const traces = `(steps) => show((state) => { state.explored = { id: 1, subject: "none", command: "", phase: "",
		cells: [], schedules: 1,
		traces: steps.map((steps) => ({ id: 1, name: "no fault", kind: "lost update", steps })) }; })`
	browsertest.Eval[bool](p, `(window.traces = `+traces+`)([9])`)
	browsertest.Eval[bool](p, `(window.kept = document.querySelector("#traces button")).focus() || traces([8])`)
	p.WaitFor(`document.activeElement === kept && document.querySelector("#traces").textContent.includes("8 steps")`)
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

// lookAtSandboxedFault uses the report of a fault, as the console serves it.
func lookAtSandboxedFault(t *testing.T, address string) {
	t.Helper()
	page := browsertest.Open(t, address+"#late-write/lock-redis-lua")
	mustBeSandboxed(t, page)
	page.WaitFor(`document.getElementById("fault").open && document.querySelector("#fault .timeline svg")`)
	// The page uses the clipboard, or where that is not permitted, a selection.
	browsertest.Eval[bool](page, `(() => {
		document.addEventListener("copy", () => { window.copied = getSelection().toString(); });
		const write = Clipboard.prototype.writeText;
		Clipboard.prototype.writeText = async function(text) { await write.call(this, text); window.copied = text; };
		return true;
	})()`)
	page.Click("#fault .replay button")
	page.WaitFor(`window.copied === document.querySelector("#fault .replay code").textContent`)
	page.Press(kb.Escape)
	page.WaitFor(`!document.getElementById("fault").open`)
	page.Click("[data-fault]")
	page.WaitFor(`location.hash === "#late-write/lock-redis-lua"`)
}

// mustBeSandboxed fails the test unless the page has an origin of its own.
func mustBeSandboxed(t *testing.T, page *browsertest.Page) {
	t.Helper()
	if origin := browsertest.Eval[string](page, "self.origin"); origin != "null" {
		t.Errorf("the origin of a report is %q, want one of its own", origin)
	}
}
