package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// template returns an empty data directory of this server, to be copied and never written to. The first call makes it;
// it is reused until the program changes.
func (p mysqlProgram) template(ctx context.Context) (string, error) {
	path, err := p.templatePath()
	if err != nil {
		return "", fmt.Errorf("choose where to keep an empty data directory: %w", err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// One process makes the directory while the others wait. It gets its name only when it is complete.
	lock, err := lockFile(path+".lock", os.O_CREATE, syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fresh := path + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700)); err != nil {
		return "", fmt.Errorf("make an empty data directory: %w", err)
	}
	install := p.installMySQL
	if p.mariaDB {
		install = p.installMariaDB
	}
	if output, err := install(ctx, fresh); err != nil {
		err = fmt.Errorf("make an empty data directory with %s: %w\n%s", p.path, err, output)
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return path, os.Rename(fresh, path)
}

func (p mysqlProgram) templatePath() (string, error) {
	program, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	identity := sha256.Sum256(fmt.Append(nil, program, info.Size(), info.ModTime().UnixNano()))
	name := fmt.Sprintf("%s-%x", strings.ReplaceAll(strings.ToLower(p.version), " ", "-"), identity[:4])

	if cache, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(cache, "stock", "servers")
		if os.MkdirAll(dir, 0o700) == nil {
			return filepath.Join(dir, name), nil
		}
	}
	// There is no writable home directory. This directory is not the one that NewDir sweeps.
	base, err := ownDir("stock-" + strconv.Itoa(os.Getuid()) + "-cache")
	if err != nil {
		return "", err
	}
	return filepath.Join(base, name), nil
}

// installMySQL leaves the account root@localhost without a password. Only connections over the socket can use it.
func (p mysqlProgram) installMySQL(ctx context.Context, data string) (output []byte, err error) {
	return Run(ctx, Command{
		Name: p.name(),
		Path: p.path,
		Args: append(mysqlArgs(), "--initialize-insecure", "--datadir="+data),
	})
}

// installMariaDB does what mariadb-install-db does, except that it creates no accounts, loads no help texts, and leaves
// the owner and the mode of the system's PAM helper alone.
func (p mysqlProgram) installMariaDB(ctx context.Context, data string) (output []byte, err error) {
	script, err := p.systemTables()
	if err != nil {
		return nil, err
	}
	return Run(ctx, Command{
		Name:  p.name(),
		Path:  p.path,
		Args:  append(mysqlArgs(), "--bootstrap", "--datadir="+data, "--log-warnings=0", "--innodb-log-file-size=8M"),
		Stdin: io.MultiReader(strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\n"), bytes.NewReader(script)),
	})
}

// systemTables returns the SQL that creates the system tables. It is installed with the server.
func (p mysqlProgram) systemTables() ([]byte, error) {
	program, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return nil, err
	}
	prefix := filepath.Dir(filepath.Dir(program))
	for _, share := range []string{"share/mysql", "share/mariadb", "share"} {
		for _, name := range []string{"mysql", "mariadb"} {
			dir := filepath.Join(prefix, share)
			tables, err := os.ReadFile(filepath.Join(dir, name+"_system_tables.sql"))
			if err != nil {
				continue
			}
			performance, err := os.ReadFile(filepath.Join(dir, name+"_performance_tables.sql"))
			return append(tables, performance...), err
		}
	}
	return nil, fmt.Errorf("%s/share/mysql has no mysql_system_tables.sql: reinstall mariadb-server-core", prefix)
}
