package catalogue

import "stock/internal/stock"

// OnGalera is what a strategy claims if its replicas use different nodes of a Galera cluster that wait for each other's
// writes before they read (wsrep_sync_wait).
//
// A node knows only its own locks on rows and its own named locks. Two nodes that have written the same row find that
// out when they commit: the second is rolled back. So a lock on a row protects its item, but blocks nobody on another
// node.
func OnGalera(s stock.Strategy) stock.Claim {
	c := s.Claim
	switch {
	case s.Name == "lock-mysql-getlock":
		c.TwoReplicas, c.Restocked, c.HolderPause = stock.LosesUpdates, stock.LosesUpdates, stock.LateLosesUpdates
	case s.Name == "lock-multi": // its lock in Redis excludes other replicas
		c.HolderPause = stock.LateIsNotSent
	case c.LateWrite == stock.LateBlocks:
		c.HolderPause, c.LateWrite = stock.LateIsRefused, stock.LateIsRefused
	}
	return c
}
