//go:build race

package locks_test

// zooKeeperUncut says why tests in which a connection to ZooKeeper breaks do without the race detector.
const zooKeeperUncut = "go-zookeeper 1.0.4 has a data race of its own in a connection that is made again (Conn.sendSetWatches reads lastZxid " +
	"while recvLoop writes it): run this without -race, as `make test` does"
