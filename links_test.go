package stock_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"stock/internal/must"
)

const (
	maxREADMELines = 150
	maxColumns     = 120
)

func TestREADMEAndLinesAreShort(t *testing.T) {
	t.Parallel()
	for _, d := range readDocuments(t) {
		lines := strings.Split(strings.TrimSuffix(d.text, "\n"), "\n")
		if d.path == "README.md" && len(lines) > maxREADMELines {
			t.Errorf("README.md has %d lines, more than %d: move some to docs/", len(lines), maxREADMELines)
		}
		generated := false
		for i, line := range lines {
			switch {
			case sectionBegins.MatchString(line), strings.HasPrefix(line, "<!-- The import table "):
				generated = true
			case strings.HasPrefix(line, "<!-- end of "):
				generated = false
			case !generated && !strings.HasPrefix(line, "|") && len([]rune(line)) > maxColumns:
				t.Errorf("%s:%d has %d columns, more than %d", d.path, i+1, len([]rune(line)), maxColumns)
			}
		}
	}
}

// The tests named in documents and comments exist.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, file := range readFiles(t, "_test.go") {
		tests.WriteString(file.text)
	}
	documents := readDocuments(t)
	for _, file := range readFiles(t, ".go") {
		if strings.HasPrefix(file.path, "internal/locks/") && !strings.HasSuffix(file.path, "_test.go") {
			documents = append(documents, file)
		}
	}
	named := 0
	for _, d := range documents {
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(d.text, -1) {
			named++
			if !strings.Contains(tests.String(), "func "+name+"(") {
				t.Errorf("%s names %s, which is not a test of this repository", d.path, name)
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	image    = regexp.MustCompile(`\bsrc(?:set)?="([^"]+)"`)
	namedIn  = regexp.MustCompile("`((?:cmd|deploy|docs|internal|loadtest|migrations|nginx|\\.ci)/[\\w./-]*)`")
	makeRule = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	makeCode = regexp.MustCompile("`[^`\n]+`")
)

func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	must.Succeed(t, err)
	for _, d := range readDocuments(t) {
		for _, match := range link.FindAllStringSubmatch(d.text, -1) {
			checkLink(t, d, match[1])
		}
		for _, match := range image.FindAllStringSubmatch(d.text, -1) {
			checkLink(t, d, match[1])
		}
		for _, match := range namedIn.FindAllStringSubmatch(d.text, -1) {
			path := strings.TrimSuffix(match[1], "/...")
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s names %s: %v", d.path, path, err)
			}
		}
		code := makeCode.FindAllString(d.text, -1)
		for _, b := range d.blocks() {
			if b.language == "sh" {
				code = append(code, b.text)
			}
		}
		for _, match := range makeRule.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			if !bytes.Contains(makefile, []byte("\n"+match[1]+":")) {
				t.Errorf("%s names make %s, which is not a target", d.path, match[1])
			}
		}
	}
}

// checkLink checks that a relative link leads to a file, and to a heading in it.
func checkLink(t *testing.T, d document, to string) {
	if strings.Contains(to, "://") {
		return
	}
	path, anchor, hasAnchor := strings.Cut(to, "#")
	file := d.path
	if path != "" {
		file = filepath.Join(filepath.Dir(d.path), path)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		if info, statErr := os.Stat(file); statErr != nil || !info.IsDir() {
			t.Errorf("%s links to %s: %v", d.path, to, err)
		}
		return
	}
	if hasAnchor && !slices.Contains(anchors(string(text)), anchor) {
		t.Errorf("%s links to %s, and %s has no such heading", d.path, to, file)
	}
}

// anchors returns the names that GitHub gives to the headings of a document.
func anchors(text string) (names []string) {
	for line := range strings.Lines(text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading)))
	}
	return names
}

// A test that was renamed would no longer run with the race detector.
func TestTheMechanismsOfTheMakefileAreTests(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	must.Succeed(t, err)
	var tests []byte
	for _, dir := range []string{"internal", "loadtest"} {
		must.Succeed(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			tests = append(tests, text...)
			return err
		}))
	}
	lines := regexp.MustCompile(`(?m)^MECHANISMS := .*`).FindAll(makefile, -1)
	names := regexp.MustCompile(`Test\w+`).FindAllString(string(bytes.Join(lines, []byte(" "))), -1)
	if len(names) < 10 {
		t.Errorf("the Makefile names only %q", names)
	}
	for _, name := range names {
		if !bytes.Contains(tests, []byte("\nfunc "+name)) {
			t.Errorf("there is no test %s", name)
		}
	}
}
