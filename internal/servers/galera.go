package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// GaleraOptions configures StartGalera.
type GaleraOptions struct {
	Relaxed bool     // see MySQLOptions
	Args    []string // additional arguments of every node
}

// Galera is a cluster of MariaDB in which every node takes writes. It needs a majority of its three nodes.
type Galera struct {
	Nodes   []*MySQL
	Version string // such as "MariaDB 10.11.6, Galera 26.4.13, 3 nodes"

	groups []string // host:port at which the nodes reach each other
}

// GaleraNodes is the number of nodes of a cluster.
const GaleraNodes = 3

// StartGalera starts a cluster, and waits until every node takes writes.
func StartGalera(ctx context.Context, o GaleraOptions) (*Galera, error) {
	g := new(Galera)
	if err := g.start(ctx, o); err != nil {
		return nil, errors.Join(err, g.Stop(ctx))
	}
	return g, nil
}

func (g *Galera) start(ctx context.Context, o GaleraOptions) error {
	program, err := findMySQL(ctx)
	if err != nil {
		return err
	}
	library, err := findGalera(program)
	if err != nil {
		return err
	}
	template, err := program.template(ctx)
	if err != nil {
		return err
	}
	if err := g.newNodes(program, library, o); err != nil {
		return err
	}
	first := g.Nodes[0]
	if err := os.CopyFS(first.Data, os.DirFS(template)); err != nil {
		return err
	}
	// The other nodes start from a copy of the first node's data, which has the account and a position in the history of
	// the cluster.
	bootstrap := with(first.command, "--wsrep-new-cluster")
	if err := first.startAs(ctx, with(bootstrap, "--init-file="+first.dir.File("init.sql"))); err != nil {
		return err
	}
	if err := first.Process.Stop(ctx); err != nil {
		return err
	}
	for _, node := range g.Nodes[1:] {
		if err := os.CopyFS(node.Data, os.DirFS(first.Data)); err != nil {
			return err
		}
	}
	if err := first.startAs(ctx, bootstrap); err != nil {
		return err
	}
	for _, node := range g.Nodes[1:] {
		// Only the first node is named: a joining node keeps asking addresses that do not answer yet.
		if err := node.startAs(ctx, with(node.command, "--wsrep-cluster-address=gcomm://"+g.groups[0])); err != nil {
			return err
		}
	}
	return g.readVersion(ctx)
}

// findGalera finds the library that makes MariaDB a node of a cluster.
func findGalera(p mysqlProgram) (library string, err error) {
	for _, dir := range []string{"/usr/lib/galera", "/usr/lib64/galera", "/usr/lib64/galera-4"} {
		library := dir + "/libgalera_smm.so"
		if _, err := os.Stat(library); err == nil && p.mariaDB {
			return library, nil
		}
	}
	return "", errorNotInstalled("MariaDB with libgalera_smm.so", "mariadb-server-core galera-4")
}

// newNodes chooses the directories and the ports of the nodes.
func (g *Galera) newNodes(p mysqlProgram, library string, o GaleraOptions) error {
	for i := range GaleraNodes {
		node, err := newMySQL(fmt.Sprintf("galera-%d", i+1), mounted)
		if err != nil {
			return err
		}
		g.Nodes = append(g.Nodes, node)
		group, err := freeAddr()
		if err != nil {
			return err
		}
		g.groups = append(g.groups, group)
	}
	for i, node := range g.Nodes {
		node.password, node.Version = g.Nodes[0].password, p.version
		transfer, err := freeAddr()
		if err != nil {
			return err
		}
		args := append(p.args(node.dir, node.port(), MySQLOptions{Relaxed: o.Relaxed}),
			"--init-file=", "--skip-log-bin", "--innodb-autoinc-lock-mode=2",
			"--wsrep-on=ON", "--wsrep-provider="+library,
			"--wsrep-cluster-name="+filepath.Base(g.Nodes[0].dir.Path), // a longer name than 32 characters does not work
			"--wsrep-cluster-address=gcomm://"+strings.Join(g.groups, ","),
			fmt.Sprintf("--wsrep-node-name=node-%d", i+1), "--wsrep-node-address=127.0.0.1",
			"--wsrep-sst-method=nocopy",
			// A joining node asks more often than usual, and waits less for answers.
			"--wsrep-provider-options=gmcast.listen_addr=tcp://"+g.groups[i]+";ist.recv_addr="+transfer+
				";gcache.size=32M;pc.recovery=NO;pc.announce_timeout=PT0.5S"+
				";evs.join_retrans_period=PT0.1S;evs.inactive_check_period=PT0.1S",
		)
		node.command = Command{
			Name: fmt.Sprintf("galera-%d", i+1), Path: p.path, Args: slices.Concat(args, o.Args),
			Env: append(envWithout("PATH="), "PATH="+node.dir.Path+":"+os.Getenv("PATH")), Log: node.dir.File("mysql.log"),
		}
		if err := errors.Join(
			os.Mkdir(node.dir.File("tmp"), 0o700),
			os.WriteFile(node.dir.File("init.sql"), []byte(node.initSQL()), 0o600),
			os.WriteFile(node.dir.File("wsrep_sst_nocopy"), []byte(noCopy), 0o700),
		); err != nil {
			return err
		}
	}
	return nil
}

// noCopy takes the place of the program that copies all data to a joining node. A joining node of the lab lacks only
// writes that the others still have in memory, and send by themselves. So the script only reports that nothing is to be
// copied.
const noCopy = `#!/bin/sh
set -eu
while [ $# -gt 0 ] && [ "$1" != --mysqld-args ]; do
	case $1 in
	--role) role=$2 ;;
	--address) address=$2 ;;
	--datadir) data=$2 ;;
	--gtid) position=$2 ;;
	--bypass) bypass=yes ;;
	esac
	shift
done
if [ "$role" = donor ]; then
	[ "${bypass:-}" ] || exit 1 # it would have to copy all data
	echo "$position" >"$address"
	echo "done $position"
else
	rm -f "$data/position"
	mkfifo "$data/position"
	echo "ready $data/position"
	cat "$data/position"
fi
`

// with returns a command with more arguments.
func with(c Command, args ...string) Command {
	c.Args = slices.Concat(c.Args, args)
	return c
}

// startAs starts a node with another command, and waits until it takes part.
func (m *MySQL) startAs(ctx context.Context, c Command) error {
	usual := m.command
	m.command = c
	defer func() { m.command = usual }()
	if err := m.Restart(ctx); err != nil {
		return err
	}
	// Until then it refuses statements that use a table.
	return m.Await(ctx, func(ctx context.Context) error { return m.exec(ctx, "SELECT 1 FROM mysql.global_priv LIMIT 1") })
}

// recoveredPosition matches the position in the history of the cluster that a killed node reports.
var recoveredPosition = regexp.MustCompile(`WSREP: Recovered position: (\S+)`)

// Restart kills a node if it is running (SIGKILL), and starts it on the same ports with the same data. It gets from the
// others what it has missed.
func (g *Galera) Restart(ctx context.Context, node *MySQL) error {
	node.Kill()
	log := node.dir.File("position.log")
	if _, err := Run(ctx, with(node.command, "--wsrep-recover", "--log-error="+log)); err != nil {
		return err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	found := recoveredPosition.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("%s did not report its position in the history of the cluster:\n%s", node.Name, text)
	}
	return node.startAs(ctx, with(node.command, "--wsrep-start-position="+string(found[1])))
}

// Isolate cuts a node off from the others. Its clients still reach it.
func (g *Galera) Isolate(ctx context.Context, node *MySQL) error { return setIsolation(ctx, node, "1") }

// Reconnect ends Isolate.
func (g *Galera) Reconnect(ctx context.Context, node *MySQL) error {
	return setIsolation(ctx, node, "0")
}

func setIsolation(ctx context.Context, node *MySQL, value string) error {
	err := node.exec(ctx, "SET GLOBAL wsrep_provider_options = 'gmcast.isolate="+value+"'")
	if err != nil {
		return fmt.Errorf("set gmcast.isolate of %s: %w", node.Name, err)
	}
	return nil
}

// readVersion asks a node for the version of the library, "4.23(rXXXX)", and describes the cluster.
func (g *Galera) readVersion(ctx context.Context) error {
	db, err := g.Nodes[0].open()
	if err != nil {
		return err
	}
	defer db.Close()
	var name, version string
	row := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep_provider_version'")
	if err := row.Scan(&name, &version); err != nil {
		return fmt.Errorf("ask for the version of Galera: %w", err)
	}
	release, _, _ := strings.Cut(version, "(")
	g.Version = fmt.Sprintf("%s, Galera 26.%s, %d nodes", g.Nodes[0].Version, release, len(g.Nodes))
	return nil
}

// Stop kills the nodes and removes their directories.
func (g *Galera) Stop(ctx context.Context) error {
	var errs []error
	for _, node := range g.Nodes {
		errs = append(errs, node.Stop(ctx))
	}
	return errors.Join(errs...)
}
