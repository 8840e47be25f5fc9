// Package tenant gives the lab a database and keys of its own on servers that somebody else uses, and removes them.
//
// Their name is random. So nothing else on the servers can be touched, and labs that run at the same time do not meet.
// No setting is changed. A lab that was killed leaves its database and its keys behind.
package tenant

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"stock/internal/access"
)

// Names is what every name begins with, so that an account can be limited to them.
const Names = "stock_lab_"

// NewName returns the name of a database. With a colon, it is a prefix of keys.
func NewName() string { return Names + strings.ToLower(rand.Text()[:10]) }

const (
	connectTime = 5 * time.Second  // how long it may take to connect
	patience    = 10 * time.Second // how long a server may take for one answer
)

// unreachable asks whether a server is running, unless its error says more.
func unreachable(err error) error {
	if access.Remedy(err) != "" {
		return access.Explain(err)
	}
	return fmt.Errorf("is it running? %w", err)
}
