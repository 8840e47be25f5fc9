package access

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// CheckServers accepts a list of different addresses of servers. Its errors continue a sentence that begins with the
// name of the flag, and quote nothing that may contain a password.
func CheckServers(addresses []string) error {
	for i, address := range addresses {
		if err := checkServer(address); err != nil {
			return err
		}
		if slices.Contains(addresses[:i], address) {
			return fmt.Errorf("names %s twice", address)
		}
	}
	return nil
}

func checkServer(address string) error {
	if strings.Contains(address, "@") {
		return errors.New("must be host:port; put the password of Redis into STOCK_REDIS_PASSWORD (of the lab, " +
			"LOADTEST_REDIS_PASSWORD)")
	}
	if !IsHostPort(address) {
		return fmt.Errorf("is %q: it must be host:port without blanks, like 127.0.0.1:6379", address)
	}
	if host, port, _ := net.SplitHostPort(address); host == "" || port == "0" {
		return fmt.Errorf("is %q: it must name a host and a port other than 0, like 127.0.0.1:6379", address)
	}
	return nil
}

// IsHostPort reports whether an address is host:port without blanks, with a port in digits. The host may be empty.
func IsHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil && !strings.ContainsFunc(host, unicode.IsSpace)
}
