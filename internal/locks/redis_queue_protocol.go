package locks

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/queue_acquire.lua
	queueAcquireLua string
	//go:embed lua/queue_release.lua
	queueReleaseLua string
	//go:embed lua/queue_leave.lua
	queueLeaveLua string

	queueAcquireScript = queueScript(queueAcquireLua)
	queueReleaseScript = queueScript(queueReleaseLua)
	queueLeaveScript   = queueScript(queueLeaveLua)
)

// queueLuaScript is a script with its hash.
type queueLuaScript struct {
	text, hash any // strings
}

func queueScript(text string) queueLuaScript {
	constants := fmt.Sprintf("local block, patience = %d, %d\n", turnGrants, queueHeartbeat.Milliseconds())
	text = constants + strings.Replace(text, "-- include queue.lua\n", queueLua, 1)
	return queueLuaScript{text, redis.NewScript(text).Hash()}
}

// queueKeys returns the keys of the scripts: see lua/queue.lua.
func queueKeys(key string) queueKeyNames {
	return queueKeyNames{key, sibling(key, ":queue"), sibling(key, ":heard"), sibling(key, ":memory")}
}

// queueKeyNames are strings. As values of any, they are made once for all commands of a turn.
type queueKeyNames [4]any

// queueReply is what acquire in lua/queue.lua returns.
type queueReply struct {
	token    uint64    // the first of a turn; 0 if the owner has to wait
	deadline time.Time // of the turn

	wait time.Duration // until the holder's lease ends
	last uint64        // the first token of the last turn
}

func (r queueReply) granted() bool { return r.token != 0 }

func (q *RedisQueue) newReply(sent time.Time, reply any) (queueReply, error) {
	switch reply := reply.(type) {
	case int64:
		if reply == 0 {
			return queueReply{}, errors.New("a late request: its owner had given up before")
		}
		return queueReply{token: uint64(reply), deadline: q.options.guaranteed(sent)}, nil
	case []any:
		if len(reply) == 2 {
			ms, _ := reply[0].(int64)
			last, _ := reply[1].(int64)
			return queueReply{wait: time.Duration(ms) * time.Millisecond, last: uint64(last)}, nil
		}
	}
	return queueReply{}, errUnknownReply(reply)
}

func errUnknownReply(reply any) error {
	return fmt.Errorf("unexpected reply of the script, perhaps of another version: %v", reply)
}

// queueOwner names a turn in the scripts. What is left to the background keeps this, and not the turn, whose lease
// keeps the request.
type queueOwner struct {
	keys   queueKeyNames
	number uint64
}

func (t *turn) owner() queueOwner { return queueOwner{t.cohort.keys, t.number} }

// run runs a script for an owner. It does what redis.Script.Run does with half of the allocations.
func (q *RedisQueue) run(ctx context.Context, script queueLuaScript, o queueOwner, more ...any) (any, error) {
	args := make([]any, 0, 3+len(o.keys)+5)
	args = append(args, "evalsha", script.hash, len(o.keys))
	args = append(args, o.keys[:]...)
	args = append(args, q.leaseArg, q.processArg, o.number)
	args = append(args, more...)
	reply, err := q.do(ctx, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", script.text
		return q.do(ctx, args)
	}
	return reply, err
}

func (q *RedisQueue) do(ctx context.Context, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3) // for Redis Cluster
	_ = q.client.Process(ctx, cmd)
	return cmd.Result()
}

// acquire asks for a turn.
func (q *RedisQueue) acquire(ctx context.Context, t *turn) (queueReply, error) {
	var once []any
	if t.once {
		once = []any{"once"}
	}
	sent := time.Now()
	answer, err := q.run(ctx, queueAcquireScript, t.owner(), once...)
	if err != nil {
		return queueReply{}, err
	}
	return q.newReply(sent, answer)
}

// release releases a turn and asks for the following one, unless that is nil.
func (q *RedisQueue) release(ctx context.Context, t, following *turn) (released bool, reply queueReply, err error) {
	sent := time.Now()
	if following == nil {
		answer, err := q.run(ctx, queueReleaseScript, t.owner(), t.first)
		return answer == int64(1), queueReply{}, err
	}
	answer, err := q.run(ctx, queueReleaseScript, t.owner(), t.first, following.number)
	if err != nil {
		return false, queueReply{}, err
	}
	both, _ := answer.([]any)
	if len(both) != 2 {
		return false, queueReply{}, errUnknownReply(answer)
	}
	reply, err = q.newReply(sent, both[1])
	return both[0] == int64(1), reply, err
}

// leave undoes a turn that may have been granted, or may wait. It works after ctx has ended.
func (q *RedisQueue) leave(ctx context.Context, t *turn) {
	owner := t.owner()
	q.undos.takeBack(ctx, func(ctx context.Context) error {
		_, err := q.run(ctx, queueLeaveScript, owner)
		return err
	})
}

// grantMessage is what pass in lua/queue.lua publishes.
type grantMessage struct {
	number, token uint64
	ttl           time.Duration
	key           string
}

func parseGrant(message string) (m grantMessage, err error) {
	fields := strings.SplitN(message, " ", 4)
	if len(fields) != 4 {
		return m, fmt.Errorf("grant %q has %d fields, want 4", message, len(fields))
	}
	number, numberErr := strconv.ParseUint(fields[0], 10, 64)
	ms, ttlErr := strconv.ParseInt(fields[1], 10, 64)
	token, tokenErr := strconv.ParseUint(fields[2], 10, 64)
	m = grantMessage{number: number, token: token, ttl: time.Duration(ms) * time.Millisecond, key: fields[3]}
	return m, errors.Join(numberErr, ttlErr, tokenErr)
}
