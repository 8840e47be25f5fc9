package stock_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// reasons lists why a command of the documents may stay untested.
var reasons = []string{
	"takes minutes",
	"needs docker",
	"needs servers of yours",
	"runs until Ctrl-C",
	"changes the source",
}

// languages are those of blocks.
var languages = []string{"sh", "go", "python", "java", "json", "sql", "lua", "text"}

// document is a Markdown file of this repository.
type document struct{ path, text string }

func readDocuments(t *testing.T) []document {
	t.Helper()
	return readFiles(t, ".md")
}

// readFiles reads the files of this repository that have the suffix, except those that commands create.
func readFiles(t *testing.T, suffix string) (files []document) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "out", "testdata"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		files = append(files, document{path, string(text)})
		return err
	})
	must.Succeed(t, err)
	return files
}

// block is a fenced block of a document.
type block struct {
	line     int // of its first line, from 1
	language string
	notRun   string // the reason in the comment before it, if any
	text     string
}

var notRunMarker = regexp.MustCompile(`^<!-- not run: (.*) -->$`)

func (d document) blocks() (blocks []block) {
	var open *block
	reason := ""
	for i, line := range strings.Split(d.text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			blocks = append(blocks, block{line: i + 2, language: language, notRun: reason})
			open = &blocks[len(blocks)-1]
		case fence:
			open, reason = nil, ""
		case open != nil:
			open.text += line + "\n"
		case notRunMarker.MatchString(line):
			reason = notRunMarker.FindStringSubmatch(line)[1]
		case line != "":
			reason = ""
		}
	}
	return blocks
}

// Every sh block is run by TestCommandsOfTheDocumentsWork, or a comment before it says why not.
func TestEveryCommandIsRunOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	for _, d := range readDocuments(t) {
		for _, b := range d.blocks() {
			at := fmt.Sprintf("%s:%d", d.path, b.line)
			if !slices.Contains(languages, b.language) {
				t.Errorf("%s: a block of language %q: use one of %q", at, b.language, languages)
			}
			if b.notRun == "" {
				continue
			}
			if b.language != "sh" {
				t.Errorf("%s: only a block of sh can be marked as not run", at)
			}
			if !slices.Contains(reasons, b.notRun) {
				t.Errorf("%s: not run for the reason %q, which is not one of %q", at, b.notRun, reasons)
			}
			check := exec.Command("bash", "-n")
			check.Stdin = strings.NewReader(b.text)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", at, err, out)
			}
		}
	}
}

// unexpected finds a refusal other than "sold out" and "reservation-…", and a vegeta report with failures.
var unexpected = regexp.MustCompile(
	`/problems/([^rs]|s[^o]|r[^e])|Success +\[ratio\] +\d?\d\.`)

// The commands run as they stand, except for ports, paths and the amount of load. All blocks run one after the other on
// one lab. Each of them finds 6,000 units of item 1, as after make up; it must set the stock of other items itself.
func TestCommandsOfTheDocumentsWork(t *testing.T) {
	if *update {
		t.Skip("-update only rewrites the generated parts of the documents")
	}
	serverstest.Long(t)
	t.Parallel()
	lab := startLab(t)
	documents := readDocuments(t)
	t.Run("flags", func(t *testing.T) { lab.checkFlags(t, documents) })
	t.Run("alerts", lab.checkAlerts)
	for _, d := range documents {
		for _, b := range d.blocks() {
			if b.language != "sh" || b.notRun != "" {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", d.path, b.line), func(t *testing.T) {
				lab.fillStock(t)
				run := exec.Command("bash", "-euc", lab.replace.Replace(b.text))
				run.Env = append(os.Environ(), "LOADTEST_OUT="+t.TempDir()+"/out")
				run.Env = append(run.Env, lab.environment...)
				out, err := run.CombinedOutput()
				if err != nil || unexpected.Match(out) {
					t.Errorf("%v\n%s\noutput:\n%s", err, b.text, out)
				}
			})
		}
	}
}

// runningLab is a lab and how the commands of the documents reach it.
type runningLab struct {
	stock, loadtest string // the programs

	admin       string // URL
	replace     *strings.Replacer
	environment []string
}

// startLab starts a lab on free ports. `loadtest run` finds it in the environment and starts no servers of its own.
func startLab(t *testing.T) *runningLab {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./loadtest", "./cmd/stock")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const anyPort = "127.0.0.1:0"
	cmd := exec.Command(filepath.Join(dir, "loadtest"), "up", "--json", "--listen", anyPort,
		"--admin-listen", anyPort, "--console=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, &stderr)
		}
	})
	var topology struct {
		URL            string
		SingleURL      string `json:"single_url"`
		MySQLDSN       string `json:"mysql_dsn"`
		Redis, Redlock []string
		Replicas       []struct {
			AdminURL string `json:"admin_url"`
		}
	}
	if err := json.NewDecoder(stdout).Decode(&topology); err != nil {
		t.Fatalf("loadtest up: %v: %s", err, &stderr)
	}
	admin := topology.Replicas[0].AdminURL
	redis := strings.Join(topology.Redis, ",")
	moved := filepath.Join(dir, "deduct.targets")
	const targets = "loadtest/vegeta/deduct.targets"
	text, err := os.ReadFile(targets)
	must.Succeed(t, err)
	host := strings.TrimPrefix(topology.URL, "http://")
	text = bytes.ReplaceAll(text, []byte("127.0.0.1:8000"), []byte(host))
	must.Succeed(t, os.WriteFile(moved, text, 0o600))
	stock, loadtest := filepath.Join(dir, "stock"), filepath.Join(dir, "loadtest")
	return &runningLab{
		stock:    stock,
		loadtest: loadtest,
		admin:    admin,
		replace: strings.NewReplacer(
			"localhost:8000", host, "127.0.0.1:8000", host, "localhost:9001", strings.TrimPrefix(admin, "http://"),
			"127.0.0.1:8081", serverstest.FreeAddress(t), "127.0.0.1:9091", serverstest.FreeAddress(t),
			"root:secret@tcp(127.0.0.1:3306)/stock", topology.MySQLDSN, "127.0.0.1:6379", redis,
			"go run ./loadtest", loadtest, "go run ./cmd/stock", stock, "make build", "", "bin/stock", stock,
			targets, moved, "out/", dir+"/out/",
			"-duration=5s", "-duration=1s", "--rounds 6", "--rounds 2",
			"explore --quick", "explore --strategies update --faults 0",
			"--quick", "--quick --requests 150",
			"users=1,8,32,128 --rounds 5", "users=1,16 --rounds 1 --requests 150",
		),
		environment: []string{
			"LOADTEST_TARGET=" + topology.URL, "LOADTEST_SINGLE=" + topology.SingleURL, "LOADTEST_ADMIN=" + admin,
			"LOADTEST_MYSQL_DSN=" + topology.MySQLDSN, "LOADTEST_REDIS=" + redis,
			"LOADTEST_REDLOCK=" + strings.Join(topology.Redlock, ","),
		},
	}
}

// checkFlags checks that each flag in backquotes, such as `--lease`, is one of a program's.
func (l *runningLab) checkFlags(t *testing.T, documents []document) {
	var help strings.Builder
	for program, commands := range map[string][]string{
		l.stock:    {"serve", "migrate", "prune", "reconcile", "healthcheck"},
		l.loadtest: {"run", "explore", "faults", "up", "plant", "compare"},
	} {
		for _, command := range commands {
			out, err := exec.Command(program, command, "--help").CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
			help.Write(out)
		}
	}
	for _, d := range documents {
		for _, match := range regexp.MustCompile("`(--[a-z-]+)[` ]").FindAllStringSubmatch(d.text, -1) {
			if !regexp.MustCompile(regexp.QuoteMeta(match[1]) + `\b[^-]`).MatchString(help.String()) {
				t.Errorf("%s names the flag %s, which no program has", d.path, match[1])
			}
		}
	}
}

// fillStock sets the stock of item 1, the only item that a new lab has.
func (l *runningLab) fillStock(t *testing.T) {
	url := l.admin + "/admin/stock/1"
	body := strings.NewReader(`{"stock":6000}`)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
	must.Succeed(t, err)
	request.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	reply.Body.Close()
	if reply.StatusCode/100 != 2 {
		t.Fatalf("PUT %s: %s", url, reply.Status)
	}
}
