package console

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/page"
)

var (
	//go:embed assets/console.tmpl
	markup string
	//go:embed assets/console.css
	style string
	//go:embed assets/console.js
	code string

	parsed = template.Must(template.New("console").Parse(markup))
)

// chosen is what the page shows before anybody has chosen anything.
type chosen struct {
	Strategies  []choice
	CommandNote string
	MaxUsers    int
	MaxHoldMS   int64
}

// choice is a strategy that can be chosen.
type choice struct {
	Name, Summary string
	Control       bool   // wrong on purpose
	Missing       string // why it cannot run here
	Checked       bool
}

// told is a fault as the script of the page knows it.
type told struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Strategies []string `json:"strategies"`
}

// tourFault is a fault of the tour.
type tourFault struct {
	Name     string `json:"name"` // short: a phone shows all of it
	Scenario string `json:"scenario"`
	Strategy string `json:"strategy"`
	Why      string `json:"why"`
}

// tour goes up the ladder of locks, from flaw to flaw, and ends with what has none.
var tour = []tourFault{
	{"No lease", "holder-dies", "lock-redis-setnx",
		"Without a lease, the lock of a dead holder stays for ever."},
	{"No owner", "deletes-anothers-lock", "lock-redis-expiry",
		"A late release deletes the lock of the next holder."},
	{"Check, then delete", "deletes-anothers-lock", "lock-redis-owner",
		"The lock can change hands between the check of the owner and the deletion."},
	{"No fencing token", "late-write", "lock-redis-lua",
		"The lease ends before the holder's write arrives, and a sale is lost."},
	{"Renewals", "holder-pauses", "lock-redis-watchdog",
		"A holder that is stopped renews nothing, and writes when it goes on."},
	{"A fencing token", "late-write", "lock-redis-fenced",
		"With a fencing token, the store refuses the late write."},
	{"No lock", "late-write", "update",
		"One statement needs no lock."},
	{"A retry", "client-retries", "decrement",
		"A client that sends its request again buys twice."},
	{"An idempotency key", "client-retries", "update",
		"A request that is sent again with its key sells once."},
}

// render writes the page, and decides its Content-Security-Policy.
func (c *Console) render() error {
	var first bytes.Buffer
	if err := parsed.Execute(&first, c.chosen()); err != nil {
		return err
	}
	examples, err := gallery()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = page.Frame{
		Title: "The lab",
		Lead: fmt.Sprintf("%d replicas of the service behind nginx, at %s, and the servers that they need. "+
			"Ctrl-C in the terminal ends them.", len(c.lab.Topology.Replicas), c.lab.Topology.URL),
		Main: template.HTML(first.String()),
		Data: []page.Data{
			{ID: "faults-data", Value: tell(c.catalogue)}, {ID: "tour-data", Value: tour},
			{ID: "gallery-data", Value: examples},
		},
		Scripts: []string{"copy.js", "trace.js"},
		Served:  true,
		Style:   template.CSS(style),
		Code:    template.JS(code),
	}.Write(&text)
	c.page = text.Bytes()
	c.policy = policy(c.page)
	return err
}

// scriptElement matches a script of the page, and not the data for it.
var scriptElement = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// policy allows the page its own scripts and styles, and requests to its own origin.
func policy(text []byte) string {
	var hashes []string
	for _, match := range scriptElement.FindAllSubmatch(text, -1) {
		sum := sha256.Sum256(match[1])
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; form-action 'none'; " +
		"base-uri 'none'; frame-ancestors 'none'; script-src " + strings.Join(hashes, " ")
}

func (c *Console) chosen() chosen {
	view := chosen{
		CommandNote: c.options.CommandNote, MaxUsers: load.MaxUsers, MaxHoldMS: load.MaxHold.Milliseconds(),
	}
	for _, s := range c.catalogue {
		if s.Baseline() || len(s.Stores) == 0 {
			continue // every run has the baseline
		}
		view.Strategies = append(view.Strategies, choice{
			Name: s.Name, Summary: s.Summary, Control: s.Control, Missing: s.Unavailable[s.Stores[0]],
			Checked: s.Name == "none",
		})
	}
	return view
}

// tell lists the faults, each with who plays it.
func tell(catalogue []load.Strategy) (faults []told) {
	for _, s := range fault.Scenarios {
		fault := told{Name: s.Name, Title: s.Title, Strategies: []string{}}
		for _, row := range catalogue {
			if len(row.Stores) > 0 && s.Applies(row) {
				fault.Strategies = append(fault.Strategies, row.Name)
			}
		}
		faults = append(faults, fault)
	}
	return faults
}
