package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ZooKeeperOptions configures StartZooKeeper. The zero value is as durable as ZooKeeper is by default: every write is
// flushed.
type ZooKeeperOptions struct {
	Name    string   // used in messages; "zookeeper" if empty
	Relaxed bool     // flushes nothing. For tests, never for measurements.
	TLS     *TLS     // a second port, for clients with a certificate; none if nil
	Java    []string // additional options of Java, such as "-Dznode.container.checkIntervalMs=1000"
}

// zooKeeperTick is the unit of time of the server: a session lasts at least two ticks, and may end one tick late. The
// default is 2 s.
const zooKeeperTick = 500 * time.Millisecond

// ZooKeeper is a private, standalone ZooKeeper server. It has no password, but listens on loopback only. Its sessions
// last from one second to one minute. A Restart keeps what the server has acknowledged, and each session starts again
// with its full timeout.
type ZooKeeper struct {
	Server

	TLSAddr string      // host:port for TLS; empty without
	Data    string      // directory of its snapshots and transaction logs
	client  *tls.Config // nil without TLS
}

// StartZooKeeper starts a ZooKeeper server, which is a Java program, and waits until it answers.
func StartZooKeeper(ctx context.Context, o ZooKeeperOptions) (*ZooKeeper, error) {
	if o.Name == "" {
		o.Name = "zookeeper"
	}
	java, classpath, err := findZooKeeper()
	if err != nil {
		return nil, err
	}
	server, err := newServer("zookeeper")
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{Server: server, Data: server.dir.File("data")}
	z.ready = z.serves
	conf := z.dir.File("zoo.cfg")
	z.command = Command{
		Name: o.Name,
		Path: java,
		Args: slices.Concat(javaOptions(), o.Java,
			[]string{"-cp", classpath, "org.apache.zookeeper.server.ZooKeeperServerMain", conf}),
		// These variables configure every Java program, which also reports them in its output.
		Env: envWithout("JAVA_TOOL_OPTIONS=", "_JAVA_OPTIONS=", "JDK_JAVA_OPTIONS="),
		Log: z.dir.File("zookeeper.log"),
	}
	if err := z.start(ctx, o, conf); err != nil {
		return nil, errors.Join(err, z.Stop(ctx))
	}
	return z, nil
}

// start writes the configuration, and starts the server for the first time.
func (z *ZooKeeper) start(ctx context.Context, o ZooKeeperOptions, conf string) error {
	content := o.conf(z.Data, z.port())
	if o.TLS != nil {
		secure, err := z.secure(*o.TLS)
		if err != nil {
			return fmt.Errorf("prepare TLS of %s: %w", o.Name, err)
		}
		content += secure
	}
	if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
		return err
	}
	return z.Restart(ctx)
}

func (o ZooKeeperOptions) conf(data, port string) string {
	forceSync := "yes"
	if o.Relaxed {
		forceSync = "no"
	}
	return strings.Join([]string{
		"tickTime=" + strconv.FormatInt(zooKeeperTick.Milliseconds(), 10),
		"maxSessionTimeout=60000",
		"dataDir=" + data,
		"clientPort=" + port,
		"clientPortAddress=127.0.0.1",
		"maxClientCnxns=0", // no limit per client address: all clients have the same one
		"forceSync=" + forceSync,
		"admin.enableServer=false", // it would listen on a fixed port
		"4lw.commands.whitelist=srvr",
		"",
	}, "\n")
}

// secure returns the configuration of a second port, on which clients must have a certificate. Only Netty serves TLS.
func (z *ZooKeeper) secure(files TLS) (conf string, err error) {
	if z.TLSAddr, err = freeAddr(); err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(z.TLSAddr)
	if z.client, err = files.client(); err != nil {
		return "", err
	}
	// The certificate and its key must be in one file, whose name tells its type, and so must that of the CA.
	cert, err := os.ReadFile(files.Cert)
	key, err2 := os.ReadFile(files.Key)
	ca, err3 := os.ReadFile(files.CA)
	if err := errors.Join(err, err2, err3); err != nil {
		return "", err
	}
	keyStore, trustStore := z.dir.File("server.pem"), z.dir.File("ca.pem")
	if err := errors.Join(
		os.WriteFile(keyStore, append(cert, key...), 0o600), os.WriteFile(trustStore, ca, 0o600),
	); err != nil {
		return "", err
	}
	return strings.Join([]string{
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"secureClientPort=" + port,
		"secureClientPortAddress=127.0.0.1",
		"ssl.clientAuth=need",
		"ssl.keyStore.location=" + keyStore,
		"ssl.trustStore.location=" + trustStore,
		"",
	}, "\n"), nil
}

func javaOptions() []string {
	return []string{
		"-Xmx128m",
		"-XX:+UseSerialGC", // starts fast; in a heap this small, it pauses for milliseconds only
		"-XX:-UsePerfData", // would leave a file in /tmp when the server is killed
		"-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dzookeeper.jmx.log4j.disable=true",
	}
}

var zooKeeperVersion = regexp.MustCompile(`(?m)^Zookeeper version: ([0-9.]+)`)

// answerTime limits the wait for an answer. A client that connects before the server has loaded its database gets no
// answer, and its connection is never closed (NullPointerException in removeCnxn, as of 3.8).
const answerTime = 250 * time.Millisecond

// serves sends the command srvr. The answer has the version when the server has loaded its database.
func (z *ZooKeeper) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", z.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	match := zooKeeperVersion.FindSubmatch(answer)
	if match == nil {
		return fmt.Errorf("srvr: %s", strings.TrimSpace(string(answer)))
	}
	z.Version = "ZooKeeper " + string(match[1])
	return z.shakeHands(ctx)
}

// shakeHands connects to the port for TLS, if there is one: the first time, Java takes long.
func (z *ZooKeeper) shakeHands(ctx context.Context) error {
	if z.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: z.client}).DialContext(ctx, "tcp", z.TLSAddr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// zooKeeperHomes lists where an unpacked release may be: see install.sh. Homebrew installs one too.
func zooKeeperHomes() []string {
	return []string{os.Getenv("ZOOKEEPER_HOME"), "/opt/homebrew/opt/zookeeper/libexec"}
}

// debianJars are ZooKeeper, a logger that writes to stderr, and what its port for TLS needs, on Debian and Ubuntu. The
// manifest of zookeeper.jar names its other dependencies.
var debianJars = []string{
	"/usr/share/java/zookeeper.jar",
	"/usr/share/java/slf4j-api.jar",
	"/usr/share/java/slf4j-simple.jar",
	"/usr/share/java/netty-codec.jar",
	"/usr/share/java/netty-resolver.jar",
}

func findZooKeeper() (java, classpath string, err error) {
	absent := errorNotInstalled("ZooKeeper or Java", "libzookeeper-java default-jre-headless")
	programs := []string{"java"}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		programs = []string{filepath.Join(home, "bin", "java"), "java"}
	}
	java, found := find(programs...)
	if !found {
		return "", "", absent
	}
	for _, home := range zooKeeperHomes() {
		if jars := filepath.Join(home, "lib"); home != "" && isDir(jars) {
			return java, filepath.Join(home, "conf") + ":" + filepath.Join(jars, "*"), nil
		}
	}
	if _, err := os.Stat(debianJars[0]); err != nil {
		return "", "", absent
	}
	return java, strings.Join(debianJars, ":"), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
