// Package tenant gives the lab a database and keys of its own on servers that somebody else uses, and removes them.
//
// Nothing else on the servers is touched, and no setting is changed. A lab that was killed leaves its database and keys
// behind, with a marker in them; the next lab of the same name removes them. What has no marker is not the lab's, and
// stays.
package tenant

import (
	"fmt"
	"regexp"
)

// DefaultName is the usual name of a tenant.
const DefaultName = "stock_lab"

var validName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,22}$`)

// serviceName cannot be that of a tenant: the keys of a service without --key-prefix begin with it and a colon. A lab
// that finds none of them yet would delete those that such a service writes meanwhile.
const serviceName = "stock"

// CheckName returns an error unless a name can be that of a database, and with a colon the prefix of keys.
func CheckName(name string) error {
	if name == serviceName {
		return fmt.Errorf("%q is what the service uses itself: choose another one, such as %s", name, DefaultName)
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("%q must have 1 to 23 lower-case letters, digits and _, and begin with a letter", name)
	}
	return nil
}

// Prefix is the prefix of the keys of a tenant.
func Prefix(name string) string { return name + ":" }
