package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// CheckWritable reports whether the server takes writes: it sends one that changes nothing. A Redis replica refuses it,
// as does a server that is out of memory, cannot save, is loading its data, or belongs to a Cluster that is down.
//
// In a Cluster, only one master owns the key. The others answer MOVED before they check memory, disk or replicas, so
// they count as writable whenever they answer.
func (s Store) CheckWritable(ctx context.Context) error {
	err := s.Client.SetArgs(ctx, s.writableKey(), "", redis.SetArgs{Mode: "XX"}).Err()
	if isNil(err) || redis.HasErrorPrefix(err, "MOVED") {
		return nil
	}
	return err
}
