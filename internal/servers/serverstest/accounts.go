package serverstest

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
)

// Secret is the password of all accounts.
const Secret = "Ek9-secret"

// Rules returns the lines of a document that begin with one of the prefixes, such as "ACL SETUSER stock ", with Secret
// in place of PASSWORD. It fails the test if there are none for a prefix.
func Rules(t testing.TB, document string, prefixes ...string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	must.Succeed(t, err)
	for _, prefix := range prefixes {
		before := len(lines)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, prefix) {
				lines = append(lines, strings.ReplaceAll(strings.TrimSpace(line), "PASSWORD", Secret))
			}
		}
		if len(lines) == before {
			t.Fatalf("%s has no line that begins with %q", document, prefix)
		}
	}
	return lines
}

// SetUser sends the rules to a Redis server, with the options of an account that may do so.
func SetUser(t testing.TB, options *redis.Options, rules []string) {
	t.Helper()
	admin := RedisClient(t, options)
	for _, rule := range rules {
		var words []any
		for word := range strings.FieldsSeq(rule) {
			words = append(words, word)
		}
		if err := admin.Do(t.Context(), words...).Err(); err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
	}
}

// MySQLWithTLS returns the arguments with which MySQL takes clients with TLS, too.
func MySQLWithTLS(files servers.TLS) []string {
	return []string{"--ssl-ca=" + files.CA, "--ssl-cert=" + files.Cert, "--ssl-key=" + files.Key}
}
