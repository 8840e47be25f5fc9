package serverstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
)

// CA is a certificate authority for one test.
type CA struct {
	File string // its certificate in PEM

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA, whose files last as long as the test.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, key := ca.sign(t, template)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	ca.cert, ca.key = cert, key
	ca.File = ca.write(t, "ca.pem", "CERTIFICATE", der)
	return ca
}

// Issue makes a certificate, for a server that is reached by the hosts, names or IP addresses, and for a client of the
// given name.
func (ca *CA) Issue(t testing.TB, name string, hosts ...string) servers.TLS {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, key := ca.sign(t, template)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	return servers.TLS{
		CA:   ca.File,
		Cert: ca.write(t, name+".pem", "CERTIFICATE", der),
		Key:  ca.write(t, name+".key", "PRIVATE KEY", pkcs8),
	}
}

// sign makes a key, and signs a certificate for it: the CA's own until there is one.
func (ca *CA) sign(t testing.TB, template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must.Succeed(t, err)
	return der, key
}

func (ca *CA) write(t testing.TB, name, kind string, der []byte) (file string) {
	t.Helper()
	file = filepath.Join(ca.dir, name)
	must.Succeed(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}
