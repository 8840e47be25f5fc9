package stock

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/stock/share"
)

// ZooKeeperRoot is the node below which the locks in ZooKeeper are.
const ZooKeeperRoot = "/stock"

// Deps is what strategies are built from. The caller owns the connections and closes them.
type Deps struct {
	MySQL *sqlx.DB // nil if not configured
	// MySQLShares divides the connections of MySQL between the items; nil if they are not to be divided.
	MySQLShares *share.Limiter
	// MySQLReply is how long the connections of MySQL wait for a reply, the readTimeout of the DSN; 0 if they wait for
	// ever, or it is not known.
	MySQLReply time.Duration
	// MySQLHealth is a pool to the same server that keeps no idle connections: each check opens one, and so notices a
	// password that has changed. It answers also while all connections of MySQL are in use.
	MySQLHealth *sqlx.DB // set if MySQL is
	// MySQLLocks is a second pool to the same server, for its named locks. A holder keeps a connection of this pool and
	// works on one of the other. With a single pool, as many holders as it has connections would wait for each other.
	MySQLLocks   *sqlx.DB                // set if MySQL is
	TiDB         bool                    // MySQL is TiDB
	Redis        redis.UniversalClient   // one server, a Sentinel group or a Cluster; nil if not configured
	RedisReplica bool                    // each master of Redis has a Redis replica
	Redlock      []redis.UniversalClient // independent masters; empty if not configured
	Etcd         *clientv3.Client        // nil if not configured
	ZooKeeper    *zk.Conn                // nil if not configured
	ZooKeeperACL []zk.ACL                // of the nodes that are created; none: open to everybody

	// KeyPrefix begins every key and channel in Redis and every name of a lock, so that several services, or other data,
	// can share the servers. It has no braces, which would decide the hash slots of Redis Cluster.
	KeyPrefix string

	// LockWait is the longest wait for a lock, a connection, or a retry to succeed, before ErrBusy. LimitWait shortens it
	// for one request.
	LockWait time.Duration
	Lease    time.Duration // how long a lock outlives a holder that died
	Poll     time.Duration // pause between two tries of a polling lock

	// KeyTTL is how long Redis keeps the record of a sale with an idempotency key, and RefusalTTL that of a refusal. MySQL
	// keeps sales until they are pruned, and refusals for retention.Ages.
	KeyTTL, RefusalTTL time.Duration

	Log *slog.Logger // nil for none
}

// Has reports whether a server is configured.
func (d Deps) Has(need Need) bool {
	switch need {
	case NeedMySQL:
		return d.MySQL != nil
	case NeedInnoDB:
		return d.MySQL != nil && !d.TiDB
	case NeedRedis:
		return d.Redis != nil
	case NeedRedisReplica:
		return d.Redis != nil && d.RedisReplica
	case NeedRedlock:
		return len(d.Redlock) > 0
	case NeedEtcd:
		return d.Etcd != nil
	case NeedZooKeeper:
		return d.ZooKeeper != nil
	}
	return false
}
