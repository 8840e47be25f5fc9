package servers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
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

func TestInstallPrintsTheNameThatRedisIsRunAs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := func(name string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
		return path
	}
	program("mysqld")
	program("nginx")
	install := func() string {
		cmd := exec.Command("/bin/sh", "install.sh")
		cmd.Env = []string{"PATH=" + dir}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, name := range []string{"redis-check-rdb", "redis-server"} { // the second is preferred
		path := program(name)
		want := "\nredis: " + path + "\n"
		if name != "redis-server" {
			want = "\nredis: redis-server, installed as " + path + "\n"
		}
		if got := install(); !strings.Contains(got, want) {
			t.Errorf("with %s, it prints %q, want %q", name, got, want)
		}
	}
}
