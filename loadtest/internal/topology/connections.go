package topology

import (
	"fmt"
	"strconv"
)

// Connections to MySQL of one replica.
const (
	usualConns         = 32 // for statements, and as many for named locks: the defaults of "stock serve"
	leastConns         = 4  // for statements
	leastLockConns     = 12 // for named locks: an order of five items needs as many
	healthConns        = 1  // for readiness
	replicaConnections = 2*usualConns + healthConns
	leastConnections   = leastConns + leastLockConns + healthConns
)

// connectionArgs divides free connections between replicas. It returns the arguments of "stock serve", none if the
// defaults fit. Connections for statements come first: the cells of a fault scenario, which are played side by side on
// one pair of replicas, may need as many as there usually are.
func connectionArgs(free, replicas int) ([]string, error) {
	each := free / replicas
	switch {
	case each >= replicaConnections:
		return nil, nil
	case each < leastConnections:
		return nil, fmt.Errorf("MySQL has %d free connections, and %d replicas need %d: raise max_connections, "+
			"or start fewer replicas", max(free, 0), replicas, replicas*leastConnections)
	}
	conns := min(usualConns, each-healthConns-leastLockConns)
	return []string{
		"--mysql-conns=" + strconv.Itoa(conns), "--mysql-lock-conns=" + strconv.Itoa(each-healthConns-conns),
	}, nil
}
