package servers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS names the PEM files of a server that wants certificates of its clients.
type TLS struct {
	CA        string // signs the certificates of clients
	Cert, Key string // of the server
}

// client returns the configuration of a client that identifies itself with the server's own certificate.
func (t TLS) client() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the server: %w", err)
	}
	ca, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New(t.CA + " has no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: pool}, nil
}

// redisArgs returns the arguments of a Redis server that serves TLS at addr.
func (t TLS) redisArgs(addr string) []string {
	_, port, _ := net.SplitHostPort(addr)
	return []string{
		"--tls-port", port, "--tls-ca-cert-file", t.CA, "--tls-cert-file", t.Cert, "--tls-key-file", t.Key,
	}
}

// addressFor returns the address that clients and other servers use: with files, that of the port for TLS.
func (r *Redis) addressFor(files *TLS) string {
	if files == nil {
		return r.Addr
	}
	return r.TLSAddr
}
