package servers

import (
	"errors"
	"strings"
	"testing"
)

// It is not parallel because it changes where programs are searched.
func TestErrorOfAMissingServerNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	defer func(before []string) { sbin = before }(sbin)
	sbin = nil
	defer func(before []string) { postgresDirs = before }(postgresDirs)
	postgresDirs = nil
	t.Setenv("JAVA_HOME", "")

	for packages, start := range map[string]func() error{
		"mariadb-server-core": func() error { _, err := StartMySQL(t.Context(), MySQLOptions{}); return err },
		"redis-tools":         func() error { _, err := StartRedis(t.Context(), RedisOptions{}); return err },
		"postgresql":          func() error { _, err := StartPostgres(t.Context(), PostgresOptions{}); return err },
		"nginx":               func() error { _, err := StartNginx(t.Context(), NginxOptions{}); return err },
		"etcd-server":         func() error { _, err := StartEtcd(t.Context(), EtcdOptions{}); return err },
		"libzookeeper-java default-jre-headless": func() error {
			_, err := StartZooKeeper(t.Context(), ZooKeeperOptions{})
			return err
		},
	} {
		want := `is not installed: run "make servers" or "apt-get install ` + packages + `"`
		if err := start(); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to contain %q", err, want)
		}
	}
}
