package stocktest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/must"
	"stock/internal/stock"
)

// wantNoTrace checks that no server keeps anything of an item: clients choose the ids that they ask for, and must not
// be able to fill a server.
func wantNoTrace(t testing.TB, deps stock.Deps, goodsID int64) {
	t.Helper()
	ctx, id := context.WithoutCancel(t.Context()), strconv.FormatInt(goodsID, 10)
	var rows int
	must.Succeed(t, deps.MySQL.GetContext(ctx, &rows, "SELECT COUNT(*) FROM ledger WHERE goods_id = ?", goodsID))
	if rows > 0 {
		t.Errorf("the ledger has %d rows of item %d", rows, goodsID)
	}
	for _, master := range append([]redis.UniversalClient{deps.Redis}, deps.Redlock...) {
		keys, err := master.Keys(ctx, "*"+id+"*").Result()
		if err != nil || len(keys) > 0 {
			t.Errorf("Redis keeps %v of item %d, %v", keys, goodsID, err)
		}
	}
	kept, err := deps.Etcd.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must.Succeed(t, err)
	for _, pair := range kept.Kvs {
		if strings.Contains(string(pair.Key), id) {
			t.Errorf("etcd keeps %s", pair.Key)
		}
	}
	nodes, _, err := deps.ZooKeeper.Children("/")
	if slices.Contains(nodes, "stock") {
		nodes, _, err = deps.ZooKeeper.Children("/stock")
	}
	must.Succeed(t, err)
	for _, node := range nodes {
		if strings.Contains(node, id) {
			t.Errorf("ZooKeeper keeps the node %s", node)
		}
	}
}
