package stock_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// bans say which packages of this module a package must not import, directly or through others, and why. A name that ends
// in /... stands for everything below it. Test files are free.
var bans = []struct {
	packages, mayNotImport, because string
}{
	{"stock/internal/locks", "stock/...", "a lock knows nothing of what it guards"},
	{"stock/internal/servers/...", "stock/internal/stock/...", "servers are the same whoever uses them"},
	{"stock/internal/servers/...", "stock/loadtest/...", "servers are the same whoever uses them"},
	{"stock/internal/stock", "stock/internal/stock/httpapi", "the domain does not know how it is reached"},
	{"stock/internal/stock/...", "stock/internal/servers/...", "the service connects to servers, it never starts them"},
	{"stock/internal/stock/...", "stock/loadtest/...", "what is judged does not know its judge"},
	{"stock/cmd/...", "stock/internal/servers/...", "the service connects to servers, it never starts them"},
	{"stock/cmd/...", "stock/loadtest/...", "what is judged does not know its judge"},
	{"stock/loadtest/...", "stock/internal/stock/...", "the lab is black-box: it learns all over HTTP"},
	{"stock/loadtest/...", "stock/internal/locks/...", "the lab is black-box: it learns all over HTTP"},
	{"stock/loadtest/internal/history", "stock/...", "a history is read without anything that made it"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/traffic", "the judge does not know the load"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/oracle", "the judge knows what was written down, nothing else"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/topology", "the judge knows what was written down, nothing else"},
	{"stock/loadtest/internal/report", "stock/loadtest/internal/traffic", "a report is made from histories and verdicts alone"},
	{"stock/loadtest/internal/report", "stock/loadtest/internal/topology", "a report is made from histories and verdicts alone"},
	{"stock/loadtest/internal/traffic", "stock/loadtest/internal/verify", "the load does not know the judge"},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	type listed struct {
		ImportPath string
		Deps       []string
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	for _, ban := range bans {
		matched := false
		for _, p := range packages {
			// The suites are test code that lives in packages of its own.
			if !matches(ban.packages, p.ImportPath) || strings.HasSuffix(p.ImportPath, "test") {
				continue
			}
			matched = true
			if i := slices.IndexFunc(p.Deps, func(dep string) bool { return dep != p.ImportPath && matches(ban.mayNotImport, dep) }); i >= 0 {
				t.Errorf("%s imports %s: %s", p.ImportPath, p.Deps[i], ban.because)
			}
		}
		if !matched {
			t.Errorf("the ban on %s bans nothing: no such package", ban.packages)
		}
	}
}

func matches(pattern, path string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}
