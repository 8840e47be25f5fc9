package serverstest

import (
	"os"
	"os/exec"
	"testing"
)

// services are commands that succeed if what an example in a language needs is installed. Python is Debian's, which has
// the packages of Debian.
var services = map[string][]string{
	"python":          {"/usr/bin/python3", "-c", "import pymysql"},
	"python-postgres": {"/usr/bin/python3", "-c", "import psycopg2"},
	"php":             {"php", "-r", `exit((int)!in_array("mysql", PDO::getAvailableDrivers()));`},
	"node":            {"env", "NODE_PATH=/usr/share/nodejs", "node", "-e", "require('mysql')"},
	"java":            {"sh", "-c", "java --list-modules && cat /usr/share/java/mariadb-java-client.jar >/dev/null"},
}

// EachService runs a test for each language of loadtest/examples whose needs are installed. Without STOCK_TEST_ALL,
// Python stands for all.
func EachService(t *testing.T, test func(t *testing.T, language string)) {
	for language := range services {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			NeedService(t, language)
			test(t, language)
		})
	}
}

// NeedService skips the test if what an example in a language needs is not installed.
func NeedService(t testing.TB, language string) {
	t.Helper()
	if language != "python" {
		NeedAll(t)
	}
	NeedCommand(t, services[language]...)
}

// NeedAll skips a slow test unless all are to be run.
func NeedAll(t testing.TB) {
	t.Helper()
	if os.Getenv("STOCK_TEST_ALL") == "" {
		t.Skip("it takes long: make test-all runs it, or STOCK_TEST_ALL=1")
	}
}

// NeedCommand skips the test if a command fails, because what it needs is not installed.
func NeedCommand(t testing.TB, command ...string) {
	t.Helper()
	Long(t)
	text, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
	if err == nil {
		return
	}
	const fix = `"sh internal/servers/install.sh --all" installs what it needs`
	if os.Getenv("STOCK_REQUIRE_SERVICES") != "" {
		t.Fatalf("%q: %v: %s%s", command, err, text, fix)
	}
	t.Skipf("%q: %v; %s", command, err, fix)
}
