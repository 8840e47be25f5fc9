package servers_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/access"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// clients returns the configurations of a client with a certificate of the CA and of one without.
func clients(t *testing.T, ca *serverstest.CA) (with, without *tls.Config) {
	t.Helper()
	files := ca.Issue(t, "client")
	with, err := access.TLS("ca=" + ca.File + ",cert=" + files.Cert + ",key=" + files.Key)
	without, err2 := access.TLS("ca=" + ca.File)
	must.Succeed(t, errors.Join(err, err2))
	return with, without
}

func TestEtcdWithTLSWantsACertificateOfItsClients(t *testing.T) {
	t.Parallel()
	ca := serverstest.NewCA(t)
	files := ca.Issue(t, "etcd", "127.0.0.1")
	server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true, TLS: &files})
	ask := func(scheme string, config *tls.Config) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(scheme + "://" + server.Addr + "/health")
		if err == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
		}
		return err
	}
	with, without := clients(t, ca)
	if err := ask("https", with); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if ask("https", without) == nil {
		t.Error("a client without a certificate gets an answer")
	}
	if ask("http", nil) == nil {
		t.Error("a client without TLS gets an answer")
	}
}

func TestZooKeeperWithTLSWantsACertificateOfItsClients(t *testing.T) {
	t.Parallel()
	ca := serverstest.NewCA(t)
	files := ca.Issue(t, "zookeeper", "127.0.0.1")
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{Relaxed: true, TLS: &files})
	ask := func(config *tls.Config) error {
		dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
		}
		conn, _, err := zk.Connect([]string{server.TLSAddr}, 5*time.Second, zk.WithDialer(dial), zk.WithLogInfo(false),
			zk.WithLogger(silent{}))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _, err = conn.Exists("/")
		return err
	}
	with, without := clients(t, ca)
	if err := ask(with); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := ask(without); !errors.Is(err, zk.ErrNoServer) {
		t.Errorf("without a certificate: %v, want %v", err, zk.ErrNoServer)
	}
	if !strings.HasPrefix(server.TLSAddr, "127.0.0.1:") || server.TLSAddr == server.Addr {
		t.Errorf("the addresses are %s and %s", server.Addr, server.TLSAddr)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}
