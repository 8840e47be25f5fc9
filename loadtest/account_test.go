package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// The service does not exist, so that a run that is let in by Redis fails just after that.
func TestRunConnectsToRedisWithTLSAndAnAccount(t *testing.T) {
	t.Parallel()
	ca := serverstest.NewCA(t)
	files, client := ca.Issue(t, "redis", "127.0.0.1"), ca.Issue(t, "client")
	server := serverstest.StartRedis(t, servers.RedisOptions{TLS: &files})
	rules := serverstest.Rules(t, "../docs/accounts.md", "ACL SETUSER stock_reader ")
	serverstest.SetUser(t, &redis.Options{Addr: server.Addr}, rules)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(serverstest.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := "ca=" + ca.File + ",cert=" + client.Cert + ",key=" + client.Key
	for _, test := range []struct {
		settings string
		env      map[string]string
		want     string
	}{
		{settings, map[string]string{"LOADTEST_REDIS_PASSWORD_FILE": file}, "get the strategies"},
		{settings, map[string]string{"LOADTEST_REDIS_PASSWORD": "not-" + serverstest.Secret}, "check the user"},
		{"ca=" + ca.File, map[string]string{"LOADTEST_REDIS_PASSWORD_FILE": file}, "cert=FILE and key=FILE"},
	} {
		var stdout, stderr bytes.Buffer
		getenv := func(name string) string { return test.env[name] }
		code := run(t.Context(), []string{
			"run", "--target", "http://127.0.0.1:1", "--admin", "http://a", "--out", filepath.Join(t.TempDir(), "out"), "--redis", server.TLSAddr,
			"--redis-tls", test.settings, "--redis-user", "stock_reader",
		}, getenv, &stdout, &stderr)
		text := stderr.String()
		if code != exitUnusable || !strings.Contains(text, test.want) || strings.Contains(text, serverstest.Secret) {
			t.Errorf("%s: exit status %d, %q, want %d and %q", test.settings, code, text, exitUnusable, test.want)
		}
	}
}
