package wire

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// openRedis returns a client through a proxy, and one that connects directly.
func openRedis(t *testing.T, protocol int) (through, direct *redis.Client, p *Proxy, g *gate) {
	t.Helper()
	options := *shared.Redis(t)
	options.Protocol, options.MaxRetries, options.DisableIdentity = protocol, -1, true
	options.ReadTimeout = limit
	options.ContextTimeoutEnabled = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	p, g = start(t, Redis, options.Addr)
	proxied := options
	proxied.Addr = p.Addr()
	through, direct = redis.NewClient(&proxied), redis.NewClient(&options)
	t.Cleanup(func() { through.Close(); direct.Close() })
	return through, direct, p, g
}

func eachProtocol(t *testing.T, test func(t *testing.T, protocol int)) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

func TestCommandsAnswerAsTheyDoDirectly(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol int) {
		through, direct, _, g := openRedis(t, protocol)
		long := strings.Repeat("x", 3<<20)
		for _, command := range [][]any{
			{"SET", "k", "v\r\n$-1\r\n"}, {"GET", "k"}, {"GET", "none"}, {"SET", "long", long}, {"GET", "long"},
			{"HSET", "h", "a", "1", "b", "2"}, {"HGETALL", "h"}, {"SADD", "s", "x"}, {"SMEMBERS", "s"}, {"INCR", "k"},
			{"ZADD", "z", "1.5", "m"}, {"ZSCORE", "z", "m"}, {"ZRANGE", "z", "0", "-1", "WITHSCORES"},
			{"RPUSH", "l", "message", "m"},
			{"LRANGE", "l", "0", "-1"}, {"LRANGE", "none", "0", "-1"},
			{"EVAL", "return {1, {2, 'x'}, false}", "0"},
			{"EVAL", "return redis.error_reply('FENCED')", "0"}, {"NOCOMMAND"}, {"COMMAND", "DOCS", "GET"},
			{"XADD", "x", "1-1", "f", "v"}, {"XRANGE", "x", "-", "+"}, {"XREAD", "STREAMS", "x", "0"},
		} {
			direct.FlushDB(t.Context())
			direct.RPush(t.Context(), "l", "message", "m")
			got, gotErr := through.Do(t.Context(), command...).Result()
			direct.FlushDB(t.Context())
			direct.RPush(t.Context(), "l", "message", "m")
			want, wantErr := direct.Do(t.Context(), command...).Result()
			if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Errorf("%.80v: %.80v, %v, want %.80v, %v", command, got, gotErr, want, wantErr)
			}
		}
		if e := g.find(t, "GET none"); e.Reply != "nil" || e.Store != "redis" {
			t.Errorf("%+v", e)
		}
	})
}

func TestPipelineIsOneExchange(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol int) {
		through, direct, _, g := openRedis(t, protocol)
		_, err := through.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Set(t.Context(), "a", 1, 0)
			p.Get(t.Context(), "b")
			p.Do(t.Context(), "NOCOMMAND")
			return nil
		})
		if err == nil {
			t.Error("the error of a command was lost")
		}
		e := g.find(t, "SET a 1\nGET b\nNOCOMMAND")
		wantNames(t, "reads", e.Reads, "*", "redis:b")
		wantNames(t, "writes", e.Writes, "*", "redis:a")
		if !strings.HasPrefix(e.Reply, "OK; nil; error ERR unknown command") {
			t.Errorf("the reply is %q", e.Reply)
		}

		err = through.Watch(t.Context(), func(tx *redis.Tx) error {
			if err := tx.Get(t.Context(), "a").Err(); err != nil {
				return err
			}
			_, err := tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.IncrBy(t.Context(), "b", 5)
				p.Get(t.Context(), "c")
				return nil
			})
			return err
		}, "a")
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		e = g.find(t, "MULTI\nINCRBY b 5\nGET c\nEXEC")
		wantNames(t, "reads", e.Reads, "redis:a", "redis:c")
		wantNames(t, "writes", e.Writes, "redis:b")
		if e.Reply != "OK; QUEUED;"+" QUEUED; [5, nil]" || e.Local {
			t.Errorf("%+v", e)
		}
		if got := direct.Get(t.Context(), "b").Val(); got != "5" {
			t.Errorf("b is %q", got)
		}
	})
}

func TestScriptsAreNamedOnceTheyAreKnown(t *testing.T) {
	t.Parallel()
	through, _, _, g := openRedis(t, 2)
	source := "-- Sets a key. Why not?\nreturn redis.call('SET', KEYS[1], ARGV[1]) -- " + rand.Text()
	s := redis.NewScript(source)
	for i := range 2 {
		must.Succeed(t, s.Run(t.Context(), through, []string{"stock:{17}:x"}, fmt.Sprintf("v %d", i)).Err())
	}
	e := g.find(t, "EVALSHA {Sets")
	if want := "EVALSHA {Sets a key} KEYS stock:{17}:x ARGV \"v 1\""; e.Text != want {
		t.Errorf("the text is %s, want %s", e.Text, want)
	}
	if want := "EVALSHA {Sets a key} KEYS stock:{?}:x ARGV ?"; e.Shape() != want {
		t.Errorf("the shape is %s, want %s", e.Shape(), want)
	}
	wantNames(t, "writes", e.Writes, "redis:stock:{17}:x")
	wantNames(t, "writes of a script that is unknown at first", g.find(t, "EVALSHA {"+s.Hash()[:8]).Writes,
		"redis:channel:*", "redis:stock:{17}:x")
}

func TestMessagesComeBetweenReplies(t *testing.T) {
	t.Parallel()
	const message = "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
	const confirmation = "3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
	for _, kind := range []string{"*", ">"} { // RESP2 and RESP3
		s := newRedisSession(&Conn{}, nil)
		for _, step := range []struct {
			request string
			replies []string
			reply   string
		}{
			{"SUBSCRIBE c", []string{message, confirmation}, "[subscribe, c, 1]"},
			{"PING", []string{message, message, "+PONG\r\n"}, "PONG"},
		} {
			e, err := s.request(frame{commands: [][]string{strings.Fields(step.request)}})
			must.Succeed(t, err)
			for i, reply := range step.replies {
				want := pushed
				if i == len(step.replies)-1 {
					want = final
				}
				if reply[0] == '3' {
					reply = kind + reply
				}
				f, err := s.readReply(bufio.NewReader(strings.NewReader(reply)))
				must.Succeed(t, err)
				if got := s.reply(f, e); got != want {
					t.Fatalf("%q during %s is %v, want %v", reply, step.request, got, want)
				}
			}
			if e.Reply != step.reply {
				t.Errorf("the reply to %s is %q, want %q", step.request, e.Reply, step.reply)
			}
		}
	}
}

func TestBlockingCommandIsDroppedWithItsClient(t *testing.T) {
	t.Parallel()
	_, direct, p, g := openRedis(t, 2)
	queue := t.Name()
	conn := dial(t, p)
	fmt.Fprintf(conn, "SELECT %d\r\nBLPOP %s 0\r\n", direct.Options().DB, queue)
	serverstest.Eventually(t, "BLPOP waits", func() bool {
		return strings.Contains(direct.Info(t.Context(), "clients").Val(), "blocked_clients:1")
	})
	conn.Close()
	if err := g.err(g.find(t, "SELECT")); err == nil {
		t.Error("Answered got no error")
	}
	serverstest.Eventually(t, "nobody waits", func() bool {
		return strings.Contains(direct.Info(t.Context(), "clients").Val(), "blocked_clients:0")
	})
	if n := direct.RPush(t.Context(), queue, "x").Val(); n != 1 || direct.LLen(t.Context(), queue).Val() != 1 {
		t.Error("the element was lost")
	}
}
