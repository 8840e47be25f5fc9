package servers

import (
	"strings"
	"testing"
)

// Not parallel, as it changes where programs are looked for.
func TestAMissingServerIsNamedWithThePackageThatHasIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	defer func(before []string) { sbin = before }(sbin)
	sbin = nil

	for packages, start := range map[string]func() error{
		"mariadb-server-core": func() error { _, err := StartMySQL(t.Context(), MySQLOptions{}); return err },
		"redis-tools":         func() error { _, err := StartRedis(t.Context(), RedisOptions{}); return err },
		"nginx":               func() error { _, err := StartNginx(t.Context(), NginxOptions{}); return err },
	} {
		want := `is not installed: run "make servers" or "apt-get install ` + packages + `"`
		if err := start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}
