//go:build race

package locks_test

// whyZooKeeperIsNotCut says why tests that break connections to ZooKeeper do not run with the race detector.
const whyZooKeeperIsNotCut = "go-zookeeper 1.0.4 has a data race of its own when it reconnects: " +
	"Conn.sendSetWatches reads lastZxid while recvLoop writes it. Run this test without -race, as `make test` does."
