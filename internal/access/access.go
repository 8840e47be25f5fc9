// Package access reads the TLS settings and passwords with which a client connects to a server. It also says what to do
// when a server refuses a client.
package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Usage describes the settings of TLS in the help of a flag.
const Usage = "`settings` of TLS: on, or a comma-separated list of ca=FILE, cert=FILE, key=FILE (PEM), name=HOST " +
	"and insecure-skip-verify"

// settings are those of TLS for one server, or for several that are configured alike.
type settings struct {
	ca        string // file with the certificates of the CAs that are trusted; those of the system if empty
	cert, key string // files with the client's certificate and key; none if empty
	name      string // the name in the server's certificate; the host of its address if empty
	unchecked bool   // whether any certificate of the server will do
}

// TLS returns the configuration that the settings describe, or nil if there are none: no TLS. The settings are "on", or
// a comma-separated list of
//
//	ca=FILE                trust only these CAs, instead of those of the system
//	cert=FILE, key=FILE    the certificate of the client, and its key
//	name=HOST              the name in the server's certificate, if it is not the host of its address
//	insecure-skip-verify   accept any certificate of the server: anybody in between can read and change everything
//
// All files are in PEM. The client's certificate and key are read again for each connection, so that renewed ones are
// used without a restart.
func TLS(text string) (*tls.Config, error) {
	if text == "" {
		return nil, nil
	}
	s, err := parse(text)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: s.name,
		InsecureSkipVerify: s.unchecked, //nolint:gosec // only if the user asks for it by this name
	}
	if s.ca != "" {
		if config.RootCAs, err = readCAs(s.ca); err != nil {
			return nil, err
		}
	}
	if s.cert != "" {
		if _, err := readCertificate(s.cert, s.key); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return readCertificate(s.cert, s.key)
		}
	}
	return config, nil
}

func parse(text string) (s settings, err error) {
	values := map[string]*string{"ca": &s.ca, "cert": &s.cert, "key": &s.key, "name": &s.name}
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(item, "=")
		switch target := values[name]; {
		case item == "on" && text != item:
			return s, errors.New("on must stand alone: other settings turn TLS on, too")
		case item == "on":
		case item == "insecure-skip-verify":
			s.unchecked = true
		case target == nil:
			return s, fmt.Errorf("it must be on, or a comma-separated list of ca=FILE, cert=FILE, key=FILE, name=HOST "+
				"and insecure-skip-verify: %q is none of them", name)
		case value == "":
			return s, fmt.Errorf("%s= has no value", name)
		case *target != "":
			return s, fmt.Errorf("%s= is given twice", name)
		default:
			*target = value
		}
	}
	switch {
	case (s.cert == "") != (s.key == ""):
		return s, errors.New("cert=FILE and key=FILE must be given together: the client's certificate and its key")
	case s.unchecked && (s.ca != "" || s.name != ""):
		return s, errors.New("insecure-skip-verify makes ca= and name= useless: give one or the other")
	}
	return s, nil
}

func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate of a CA in PEM", file)
	}
	return pool, nil
}

func readCertificate(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate %s and its key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// Password returns the password in the environment variable of a name, or in the file that the variable NAME_FILE
// names, as Docker and Kubernetes provide secrets, without the newline at its end. It is empty if neither is set.
func Password(getenv func(string) string, name string) (string, error) {
	password, file := getenv(name), getenv(name+"_FILE")
	if file == "" {
		return password, nil
	}
	if password != "" {
		return "", fmt.Errorf("%[1]s and %[1]s_FILE are both set: unset one of them", name)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: read the password: %w", name, err)
	}
	password = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("%s_FILE: %s is empty: it must contain the password", name, file)
	}
	return password, nil
}
