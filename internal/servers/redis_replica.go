package servers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// AwaitSync waits until the Redis replica has the data of its master and receives its writes.
func (r *Redis) AwaitSync(ctx context.Context) error {
	return r.awaitReplication(ctx, "role:slave", "master_link_status:up")
}

// Promote makes the Redis replica a master (REPLICAOF NO ONE). It keeps the writes that it has received. After a
// Restart, it is a Redis replica again.
func (r *Redis) Promote(ctx context.Context) error {
	client := r.client()
	defer client.Close()
	if err := client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote %s: %w", r.Name, err)
	}
	return nil
}

// AwaitReplica waits until the server knows that its Redis replica is in sync, which the latter tells it once a second.
func (r *Redis) AwaitReplica(ctx context.Context) error {
	client := r.client()
	defer client.Close()
	replicas, err := client.Wait(ctx, 1, 20*time.Second).Result()
	if err == nil && replicas == 0 {
		err = fmt.Errorf("%s does not know of its Redis replica", r.Name)
	}
	return err
}

// Follow makes the server a Redis replica of another one (REPLICAOF), until it is restarted.
func (r *Redis) Follow(ctx context.Context, master *Redis) error {
	client := r.client()
	defer client.Close()
	host, port, err := net.SplitHostPort(master.Addr)
	if err == nil {
		err = client.Do(ctx, "REPLICAOF", host, port).Err()
	}
	return err
}

// CutReplication has the Redis replica receive nothing more from its master, until it is restarted or promoted. It then
// logs in with a password, which the master refuses because it has none.
func (r *Redis) CutReplication(ctx context.Context) error {
	client := r.client()
	defer client.Close()
	err := client.ConfigSet(ctx, "masterauth", "refused").Err()
	if err == nil {
		err = client.Do(ctx, "CLIENT", "KILL", "TYPE", "master").Err()
	}
	if err != nil {
		return fmt.Errorf("cut %s off from its master: %w", r.Name, err)
	}
	return r.awaitReplication(ctx, "master_link_status:down")
}

// awaitReplication waits until the server's INFO replication has all lines.
func (r *Redis) awaitReplication(ctx context.Context, lines ...string) error {
	return r.await(ctx, func(ctx context.Context, client *redis.Client) error {
		info, err := client.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		return hasLines(info, lines...)
	})
}

// hasLines returns an error unless the text has all lines.
func hasLines(text string, lines ...string) error {
	for _, line := range lines {
		if !strings.Contains(text, line+"\r\n") {
			return fmt.Errorf("%s is not in %s", line, text)
		}
	}
	return nil
}
