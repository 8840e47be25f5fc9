package access_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"stock/internal/access"
	"stock/internal/must"
)

func TestTheDSNGetsThePasswordAndTLSFromElsewhere(t *testing.T) {
	t.Parallel()
	config, err := access.MySQL("stock@tcp(db:3306)/stock", "secret", &tls.Config{ServerName: "db.example"})
	must.Succeed(t, err)
	if config.Passwd != "secret" || config.TLS == nil || config.TLS.ServerName != "db.example" {
		t.Errorf("password %q, TLS %v", config.Passwd, config.TLS)
	}
	if config, err = access.MySQL("stock:secret@unix(/tmp/s)/stock", "", nil); err != nil || config.Passwd != "secret" {
		t.Errorf("through a socket: %v, %v", config, err)
	}
}

func TestADSNThatIsMalformedOrContradictsTheSettingsIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ dsn, password, settings, want string }{
		{dsn: "root:secret@tcp(h:1)", want: "is malformed"},
		{dsn: "root@tcp(root:secret)/stock", want: "is malformed"},
		{dsn: "root:secret@udp(h:1)/stock", want: "is malformed"},
		{dsn: "root@tcp(h:1)/stock?tls=secret", want: "unknown value for tls"},
		{dsn: "root:secret@tcp(h:1)/", password: "secret", want: "has a password, and so has"},
		{dsn: "root@tcp(h:1)/?tls=preferred", settings: "on", want: "has a parameter tls"},
		{dsn: "root@tcp(h:1)/?allowFallbackToPlaintext=true", settings: "on", want: "has allowFallbackToPlaintext"},
		{dsn: "root@unix(/tmp/s)/", settings: "on", want: "a socket needs no TLS"},
	} {
		secure, err := access.TLS(test.settings)
		must.Succeed(t, err)
		_, err = access.MySQL(test.dsn, test.password, secure)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", test.dsn, err, test.want)
		}
	}
}

func TestAddressesOfServersAreChecked(t *testing.T) {
	t.Parallel()
	for addresses, want := range map[string]string{
		"a:1,b:65535,[::1]:1":  "",
		"a":                    "host:port",
		"redis://:secret@h:1":  "put the password of Redis into",
		"redis://:secret@h":    "put the password of Redis into",
		":6379":                "must name a host",
		"a:0":                  "a port other than 0",
		"a:65536":              "host:port",
		"a b:1":                "without blanks",
		"a:1,b:1,a:1":          "names a:1 twice",
		"a:1,redis://:secret@": "put the password of Redis into",
	} {
		err := access.CheckServers(strings.Split(addresses, ","))
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", addresses, err, want)
		}
	}
}
