package access

import (
	"fmt"
	"strings"
)

// remedies say what to do about errors. They match a part of the error's text, because gRPC and some servers pass on
// nothing else. The first match counts.
var remedies = []struct{ text, remedy string }{
	{
		"certificate signed by unknown authority",
		"name the file of the CA that signed the server's certificate, with ca=FILE in the flag for TLS of this server",
	},
	{"certificate is valid for ", wrongName},
	{"certificate is not valid for any names", wrongName},
	{"doesn't contain any IP SANs", wrongName},
	{"certificate has expired or is not yet valid", "renew the server's certificate, and compare the clocks"},
	{"first record does not look like a TLS handshake", noTLS},
	{
		"server does not support TLS", // MySQL, which has one port for both
		"the server has no certificate: set its options ssl_ca, ssl_cert and ssl_key",
	},
	{"tls: certificate required", noCertificate},
	{"tls: bad certificate", noCertificate}, // how TLS 1.2 says that one is required
	{"remote error: tls: unknown certificate authority", refusedCertificate},
	{"remote error: tls: unknown certificate", refusedCertificate},
	{"remote error: tls: expired certificate", refusedCertificate},
	{"Error 1049", "create the database: CREATE DATABASE NAME"}, // MySQL: unknown database
	{"Error 1044", fewPermissions},                              // MySQL: access denied to a database
	{
		"Access denied for user", // MySQL
		"check the user, the password, the host that the account is for, and whether the account requires TLS or " +
			"a certificate of the client",
	},
	{"WRONGPASS", wrongPassword}, // Redis
	{
		"NOAUTH",
		"the server wants a password: set STOCK_REDIS_PASSWORD (of Sentinels, STOCK_REDIS_SENTINEL_PASSWORD; of the lab, " +
			"LOADTEST_REDIS_PASSWORD)",
	},
	{"NOPERM", fewPermissions},
	{"can't run this command or subcommand", fewPermissions},
	{"authentication failed, invalid user ID or password", wrongPassword}, // etcd
	{"etcdserver: user name is empty", "the server wants a user and a password: give both"},
	{"etcdserver: permission denied", fewPermissions},
	{"zk: not authenticated", "the nodes belong to another account: use the user and the password that created them"},
	{"command denied to user", fewPermissions}, // MySQL
}

const (
	wrongName = "connect by a name in the server's certificate, or give that name with name=HOST in the flag for TLS of " +
		"this server"
	noTLS         = "the server does not speak TLS on this port: use its port for TLS"
	noCertificate = "the server wants a certificate of the client that one of its CAs has signed: give cert=FILE and " +
		"key=FILE in the flag for TLS of this server"
	refusedCertificate = "the server does not accept the certificate of the client: use one that is valid and that a CA " +
		"of the server has signed"
	wrongPassword  = "check the user and the password"
	fewPermissions = "the account lacks a permission: grant what docs/accounts.md lists"
)

// Remedy says what to do about an error of a connection to a server, or nothing if that is not known.
func Remedy(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, r := range remedies {
		if strings.Contains(text, r.text) {
			return r.remedy
		}
	}
	return ""
}

// Explain adds what to do to an error of a connection to a server. It returns other errors as they are.
func Explain(err error) error {
	if remedy := Remedy(err); remedy != "" && !strings.Contains(err.Error(), remedy) {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}
