// Package browsertest opens pages in a real browser, for tests.
//
//	page := browsertest.Open(t, "file:///tmp/report.html")   // or an address on loopback
//	page.Click("#open")
//	page.WaitFor("document.querySelector('#opened') !== null")
//	title := browsertest.Eval[string](page, "document.title")
//	page.MustBeAccessible()
//
// A test fails if its page writes an error to the console, or sends a request to another host. Without Chromium it is
// skipped, unless the environment sets STOCK_REQUIRE_BROWSER. The checks of accessibility need axe-core, and read the
// path of its axe.min.js from STOCK_AXE (axe.sh fetches it); .ci/run installs both.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// patience is how long an action may take. The machine may be busy with the servers of other tests.
const patience = 2 * time.Minute

// Page is a page in a browser of its own.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// Open opens a page of 1400 by 900 pixels in a new browser, which is closed at the end of the test.
func Open(t testing.TB, address string) *Page {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes long: leave -short out")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.Flag("no-sandbox", os.Getuid() == 0))
	ctx, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("close the browser: %v", err)
		}
		stopBrowser()
		stopAllocator() // waits until the browser has ended
	})
	p := &Page{t: t, ctx: ctx}
	t.Cleanup(p.check) // before the browser is closed
	if err := chromedp.Listen(ctx, p.watchRequests); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the browser is closed
			}
			if m.Type == chromedp.ConsoleError || m.IsException() {
				p.problemf("console: %s", m)
			}
		}
	}()
	p.Size(1400, 900)
	p.do(chromedp.Navigate(address), "open "+address)
	return p
}

// File returns the address of a file.
func File(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// chromium returns the path of the browser, or skips the test.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "Chromium is not installed: apt-get install chromium"
	if required() {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// required reports whether the environment wants every test of pages to be run.
func required() bool { return os.Getenv("STOCK_REQUIRE_BROWSER") != "" }

// watchRequests is called for each event of the page.
func (p *Page) watchRequests(event any) {
	if sent, ok := event.(*network.EventRequestWillBeSent); ok && !local(sent.Request.URL) {
		p.problemf("a request left this host: %s", sent.Request.URL)
	}
}

// local reports whether an address is on this host, or needs none.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "file", "data", "blob", "about":
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *Page) problemf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// check fails the test if there were problems.
func (p *Page) check() {
	// What the page has written so far arrives before the answer to this.
	_, _ = chromedp.Run(p.ctx, chromedp.Evaluate[int]("1"))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Error(problem)
	}
}

// Do carries out actions of chromedp. It fails the test if one fails, or takes too long.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	for _, action := range actions {
		p.do(action, "browser")
	}
}

func (p *Page) do(action chromedp.Action[chromedp.Void], what string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// Eval returns the value of a JavaScript expression. If that is a promise, it waits for the result.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// WaitFor waits until a JavaScript expression is true.
func (p *Page) WaitFor(expression string) {
	p.t.Helper()
	for began := time.Now(); !Eval[bool](p, "Boolean("+expression+")"); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			p.t.Fatalf("after %v, this is not true: %s", patience, expression)
		}
	}
}

// Click clicks the first element that a CSS selector finds, as soon as it is visible.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)), "click "+selector)
}

// Press presses keys, such as "\t" or those of package kb.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys), fmt.Sprintf("press %q", keys))
}

// Text returns the text of the first element that a CSS selector finds.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return Eval[string](p, fmt.Sprintf("document.querySelector(%q).textContent.trim()", selector))
}

// Count returns how many elements a CSS selector finds.
func (p *Page) Count(selector string) int {
	p.t.Helper()
	return Eval[int](p, fmt.Sprintf("document.querySelectorAll(%q).length", selector))
}

// Size sets the size of the window.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height), "set the size")
}

// Dark switches between the dark and the light colours.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	feature := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{feature}})
	if err != nil {
		p.t.Fatalf("switch to %s colours: %v", scheme, err)
	}
}

// MustFit fails the test if the page is wider than the window.
func (p *Page) MustFit() {
	p.t.Helper()
	const widest = `(() => {
		const root = document.documentElement, inner = root.clientWidth;
		if (root.scrollWidth <= inner) return "";
		let out = [];
		for (const e of document.body.querySelectorAll("*"))
			if (e.getBoundingClientRect().right > inner + 1) out.push(e.tagName + "." + e.getAttribute("class"));
		return root.scrollWidth + " px in a window of " + inner + ": " + out.slice(0, 8).join(", ");
	})()`
	if wide := Eval[string](p, widest); wide != "" {
		p.t.Errorf("the page scrolls sideways: %s", wide)
	}
}

// MustBeAccessible fails the test for each serious or critical finding of axe-core. Without STOCK_AXE it checks
// nothing, unless the environment sets STOCK_REQUIRE_BROWSER: then the test fails.
func (p *Page) MustBeAccessible() {
	p.t.Helper()
	path := os.Getenv("STOCK_AXE")
	if path == "" {
		const missing = "STOCK_AXE does not name the file of axe-core, which checks accessibility: see axe.sh"
		if required() {
			p.t.Fatal(missing)
		}
		p.t.Log(missing)
		return
	}
	source, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	findings := Eval[[]string](p, string(source)+`
		axe.run().then(found => found.violations
			.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 4).map(n => n.target + " " +
				(n.any[0] || n.all[0] || n.none[0] || {message: ""}).message).join("; ")))`)
	if len(findings) > 0 {
		p.t.Errorf("axe-core:\n  %s", strings.Join(findings, "\n  "))
	}
}
