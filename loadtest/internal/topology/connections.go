package topology

import (
	"fmt"
	"strconv"
)

// Connections to MySQL of one replica. The defaults are those of "stock serve".
const (
	usualConns         = 32                     // for statements, and as many for named locks
	leastConns         = 12                     // an order of five items needs as many for named locks
	replicaConnections = connsOf*usualConns + 1 // of a replica with the defaults: one is for readiness
	connsOf            = 2
)

// mostReplicas is how many replicas can share the free connections.
func mostReplicas(free int) int { return free / (connsOf*leastConns + 1) }

// connectionArgs divides free connections between replicas. It returns the arguments of "stock serve", none if the
// defaults fit.
func connectionArgs(free, replicas int) ([]string, error) {
	conns := (free/replicas - 1) / connsOf
	switch {
	case conns >= usualConns:
		return nil, nil
	case conns < leastConns:
		return nil, fmt.Errorf("MySQL has %d free connections, and %d replicas need %d: raise max_connections, "+
			"or start fewer replicas", free, replicas, replicas*(connsOf*leastConns+1))
	}
	each := strconv.Itoa(conns)
	return []string{"--mysql-conns=" + each, "--mysql-lock-conns=" + each}, nil
}
