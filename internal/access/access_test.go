package access_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/access"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// server starts an HTTPS server with a certificate, which answers with the name in the certificate of the client.
func server(t *testing.T, files servers.TLS, auth tls.ClientAuthType) (url string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	must.Succeed(t, err)
	trusted, err := access.TLS("ca=" + files.CA)
	must.Succeed(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: trusted.RootCAs}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// get connects with settings of TLS, and returns the name by which the server knows the client.
func get(t *testing.T, url, settings string) (name string, err error) {
	t.Helper()
	config, err := access.TLS(settings)
	must.Succeed(t, err)
	return getWith(config, url)
}

func getWith(config *tls.Config, url string) (name string, err error) {
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestTheServerIsVerifiedUnlessTheSettingsSayOtherwise(t *testing.T) {
	t.Parallel()
	ca, other := serverstest.NewCA(t), serverstest.NewCA(t)
	right := server(t, ca.Issue(t, "server", "127.0.0.1"), tls.NoClientCert)
	elsewhere := server(t, ca.Issue(t, "elsewhere", "db.example"), tls.NoClientCert)
	for _, test := range []struct{ url, settings, remedy string }{
		{right, "ca=" + ca.File, ""},
		{right, "on", "with ca=FILE"},
		{right, "ca=" + other.File, "with ca=FILE"},
		{elsewhere, "ca=" + ca.File, "name=HOST"},
		{elsewhere, "ca=" + ca.File + ",name=db.example", ""},
		{right, "ca=" + ca.File + ",name=db.example", "name=HOST"},
		{right, "insecure-skip-verify", ""},
	} {
		_, err := get(t, test.url, test.settings)
		if remedy := access.Remedy(err); (err == nil) != (test.remedy == "") || !strings.Contains(remedy, test.remedy) {
			t.Errorf("%s with %s: %v, remedy %q, want %q", test.url, test.settings, err, remedy, test.remedy)
		}
	}
}

func TestARenewedCertificateIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	ca := serverstest.NewCA(t)
	url := server(t, ca.Issue(t, "server", "127.0.0.1"), tls.RequireAndVerifyClientCert)
	old, renewed := ca.Issue(t, "old"), ca.Issue(t, "renewed")
	config, err := access.TLS("ca=" + ca.File + ",cert=" + old.Cert + ",key=" + old.Key)
	must.Succeed(t, err)
	if name, err := getWith(config, url); err != nil || name != "old" {
		t.Errorf("the server knows the client as %q, %v", name, err)
	}
	must.Succeed(t, errors.Join(os.Rename(renewed.Cert, old.Cert), os.Rename(renewed.Key, old.Key)))
	if name, err := getWith(config, url); err != nil || name != "renewed" {
		t.Errorf("the server knows the client as %q, %v, want the renewed certificate", name, err)
	}
}

func TestWrongSettingsOfTLSAreRefused(t *testing.T) {
	t.Parallel()
	ca := serverstest.NewCA(t)
	files := ca.Issue(t, "client")
	for settings, want := range map[string]string{
		"yes":                                   "it must be on, or",
		"on,ca=" + ca.File:                      "on must stand alone",
		"ca=":                                   "ca= has no value",
		"ca=" + ca.File + ",ca=" + ca.File:      "ca= is given twice",
		"password=secret":                       "it must be on, or",
		"cert=" + files.Cert:                    "given together",
		"key=" + files.Key:                      "given together",
		"insecure-skip-verify,name=db":          "useless",
		"insecure-skip-verify,ca=" + ca.File:    "useless",
		"ca=/no/such/file":                      "/no/such/file",
		"ca=" + files.Key:                       "no certificate of a CA",
		"cert=/no/such,key=" + files.Key:        "/no/such",
		"cert=" + ca.File + ",key=" + files.Key: "private key does not match",
	} {
		_, err := access.TLS(settings)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

func TestPasswordsComeFromTheEnvironmentOrFromFiles(t *testing.T) {
	t.Parallel()
	write := func(name, content string) string {
		file := filepath.Join(t.TempDir(), name)
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	for _, test := range []struct {
		name, variable, file string
		want, err            string
	}{
		{name: "neither"},
		{name: "variable", variable: "secret ", want: "secret "},
		{name: "file", file: write("file", "secret"), want: "secret"},
		{name: "file with a line", file: write("line", "se cret \r\n"), want: "se cret "},
		{name: "both", variable: "secret", file: write("both", "secret"), err: "both set"},
		{name: "empty file", file: write("empty", "\n"), err: "is empty"},
		{name: "no file", file: "/no/such/file", err: "/no/such/file"},
	} {
		env := map[string]string{"P": test.variable, "P_FILE": test.file}
		got, err := access.Password(func(name string) string { return env[name] }, "P")
		if got != test.want || (err == nil) != (test.err == "") {
			t.Errorf("%s: %q, %v, want %q, %s", test.name, got, err, test.want, test.err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		}
	}
}
