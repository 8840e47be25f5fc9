package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// keySpec tells where a command has its keys. Positions count from 1, after the name of the command.
type keySpec struct {
	first, last int // the last may be counted from the end, where it is negative
	step        int
	counted     int // position of the number of keys, which follow it; 0: there is none
	reads       bool
}

// specs lists the commands by where their keys are.
var specs = []struct {
	keySpec
	commands string
}{
	{keySpec{first: 1, last: 1, step: 1, reads: true}, `GET STRLEN TTL PTTL TYPE EXPIRETIME PEXPIRETIME GETRANGE SUBSTR
		GETBIT BITCOUNT BITPOS BITFIELD_RO HGET HMGET HGETALL HEXISTS HLEN HKEYS HVALS HSTRLEN HRANDFIELD HSCAN HTTL HPTTL
		LRANGE LINDEX LLEN LPOS SCARD SISMEMBER SMISMEMBER SMEMBERS SRANDMEMBER SSCAN ZCARD ZSCORE ZMSCORE ZRANGE ZREVRANGE
		ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZCOUNT ZLEXCOUNT ZRANK ZREVRANK ZSCAN ZRANDMEMBER XLEN
		XRANGE XREVRANGE XPENDING DUMP GEOPOS GEODIST GEOHASH GEOSEARCH`},
	{keySpec{first: 1, last: 1, step: 1}, `SET SETNX SETEX PSETEX GETSET GETDEL GETEX APPEND INCR DECR INCRBY DECRBY
		INCRBYFLOAT EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST SETRANGE SETBIT BITFIELD HSET HSETNX HMSET HDEL HINCRBY
		HINCRBYFLOAT HEXPIRE HPEXPIRE HPERSIST HGETDEL HGETEX HSETEX LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LREM LSET LTRIM
		LINSERT SADD SREM SPOP ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX XADD XDEL
		XACK XTRIM XCLAIM XAUTOCLAIM XSETID PFADD RESTORE GEOADD`},
	{keySpec{first: 2, last: 2, step: 1, reads: true}, `XINFO OBJECT MEMORY`},
	{keySpec{first: 2, last: 2, step: 1}, `XGROUP`},
	{keySpec{first: 1, last: -1, step: 1, reads: true}, `EXISTS MGET SINTER SUNION SDIFF WATCH`},
	{keySpec{first: 1, last: -1, step: 1}, `DEL UNLINK TOUCH PFCOUNT PFMERGE SUNIONSTORE SINTERSTORE SDIFFSTORE`},
	{keySpec{first: 1, last: 2, step: 1}, `RENAME RENAMENX COPY LMOVE RPOPLPUSH SMOVE BLMOVE BRPOPLPUSH ZRANGESTORE LCS
		GEOSEARCHSTORE`},
	{keySpec{first: 1, last: -2, step: 1}, `BLPOP BRPOP BZPOPMIN BZPOPMAX`},
	{keySpec{first: 1, last: -1, step: 2}, `MSET MSETNX`},
	{keySpec{counted: 2}, `EVAL EVALSHA FCALL BLMPOP BZMPOP`},
	{keySpec{counted: 2, reads: true}, `EVAL_RO EVALSHA_RO FCALL_RO`},
	{keySpec{first: 1, last: 1, step: 1, counted: 2}, `ZUNIONSTORE ZINTERSTORE ZDIFFSTORE`},
	{keySpec{counted: 1, reads: true}, `ZUNION ZINTER ZDIFF SINTERCARD ZINTERCARD`},
	{keySpec{counted: 1}, `LMPOP ZMPOP`},
}

var keySpecs = sync.OnceValue(func() map[string]keySpec {
	byCommand := map[string]keySpec{}
	for _, s := range specs {
		for command := range strings.FieldsSeq(s.commands) {
			byCommand[command] = s.keySpec
		}
	}
	return byCommand
})

// keys returns the keys of a command with arguments.
func (s keySpec) keys(args []string) (keys []string) {
	last := s.last
	if last < 0 {
		last += len(args) + 1
	}
	for i := s.first; i > 0 && i <= min(last, len(args)); i += s.step {
		keys = append(keys, args[i-1])
	}
	if s.counted > 0 && s.counted <= len(args) {
		n, err := strconv.Atoi(args[s.counted-1])
		if rest := args[s.counted:]; err == nil && n > 0 {
			keys = append(keys, rest[:min(n, len(rest))]...)
		}
	}
	return keys
}

const (
	keyPrefix     = "redis:"
	channelPrefix = "redis:channel:"
	// someChannel stands for the channels of messages that scripts send: the commands do not show which.
	someChannel = channelPrefix + everything
)

// keyState is what is known about the session of a connection.
type keyState struct {
	inMulti bool
	watched names
	queued  effect // of the commands since MULTI
}

// exchange describes the commands of a pipeline.
func (s *keyState) exchange(commands [][]string) *Exchange {
	e := &Exchange{Local: true, Handshake: true}
	var reads, writes names
	var texts, shapes []string
	for _, command := range commands {
		verb, args := strings.ToUpper(command[0]), command[1:]
		one := s.command(verb, args)
		reads.add(one.reads...)
		writes.add(one.writes...)
		e.Local = e.Local && one.local
		e.Handshake = e.Handshake && one.opening
		e.abandons = e.abandons || blocks(verb, args)
		text, shape := describeCommand(verb, args)
		texts, shapes = append(texts, text), append(shapes, shape)
	}
	e.Reads, e.Writes = reads.list(), writes.list()
	e.Text, e.Shape = strings.Join(texts, "\n"), strings.Join(shapes, "\n")
	return e
}

// blocks reports whether a command may wait, and Redis forgets it if its client hangs up.
func blocks(verb string, args []string) bool {
	switch verb {
	case "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX", "BLMPOP", "BZMPOP", "WAIT", "WAITAOF":
		return true
	case "XREAD", "XREADGROUP":
		return slices.ContainsFunc(args, func(arg string) bool { return strings.EqualFold(arg, "BLOCK") })
	}
	return false
}

// command tells what a command touches, and keeps the books about MULTI and WATCH.
func (s *keyState) command(verb string, args []string) effect {
	switch verb {
	case "MULTI":
		s.inMulti, s.queued = true, effect{}
		return effect{local: true}
	case "EXEC":
		e := s.queued
		e.reads.add(s.watched...)
		*s = keyState{}
		return e
	case "DISCARD":
		*s = keyState{}
		return effect{local: true}
	case "UNWATCH":
		s.watched = nil
		return effect{local: true}
	case "RESET":
		*s = keyState{}
		return effect{local: true, opening: true}
	}
	e := touches(verb, args)
	switch {
	case s.inMulti:
		s.queued.reads.add(e.reads...)
		s.queued.writes.add(e.writes...)
		return effect{local: true}
	case verb == "WATCH":
		s.watched.add(e.reads...)
	}
	return e
}

// touches tells what a command touches, outside of MULTI.
func touches(verb string, args []string) effect {
	var e effect
	switch verb {
	case "HELLO", "AUTH", "SELECT", "READONLY", "READWRITE", "COMMAND", "QUIT":
		return effect{local: true, opening: true}
	case "CLIENT":
		if len(args) > 0 && (strings.EqualFold(args[0], "KILL") || strings.EqualFold(args[0], "UNBLOCK")) {
			break
		}
		return effect{local: true, opening: true}
	case "PING", "ECHO", "TIME", "LASTSAVE":
		return effect{local: true}
	case "WAIT", "WAITAOF", "ROLE":
		return effect{} // their answers depend on other servers
	case "SCRIPT":
		if len(args) > 1 && strings.EqualFold(args[0], "LOAD") {
			remember(args[1])
			return effect{local: true}
		}
		if len(args) > 0 && strings.EqualFold(args[0], "EXISTS") {
			return effect{local: true}
		}
	case "INFO", "DBSIZE", "SCAN", "KEYS", "RANDOMKEY", "PUBSUB":
		return effect{reads: names{everything}}
	case "PUBLISH", "SPUBLISH":
		return effect{reads: names{someChannel}, writes: prefixed(channelPrefix, args[:min(1, len(args))])}
	case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE":
		e.reads = prefixed(channelPrefix, args)
		e.reads.add(someChannel)
		return e
	case "PSUBSCRIBE", "PUNSUBSCRIBE":
		return effect{reads: names{everything}}
	case "XREAD", "XREADGROUP":
		return touchesStreams(verb, args)
	}
	spec, known := keySpecs()[verb]
	if !known {
		return effect{reads: names{everything}, writes: names{everything}}
	}
	keys := prefixed(keyPrefix, spec.keys(args))
	if spec.reads {
		e.reads = keys
	} else {
		e.writes = keys
	}
	if s, script := scriptOf(verb, args); script && (s.publishes || s.title == "") {
		e.writes.add(someChannel)
	}
	return e
}

func touchesStreams(verb string, args []string) effect {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.EqualFold(arg, "STREAMS") })
	streams := args[at+1:]
	keys := prefixed(keyPrefix, streams[:len(streams)/2])
	if verb == "XREAD" {
		return effect{reads: keys}
	}
	return effect{writes: keys} // the group remembers what it has handed out
}

func prefixed(prefix string, list []string) (all names) {
	for _, one := range list {
		all.add(prefix + one)
	}
	return all
}

// script is what is known about a script by its text.
type script struct {
	title     string // the first sentence of its comment, or the beginning of its hash
	publishes bool
}

// scripts are those that any proxy has seen, by hash: a server may know a script that another proxy has passed on.
var scripts sync.Map

func remember(text string) script {
	sum := sha1.Sum([]byte(text))
	hash := hex.EncodeToString(sum[:])
	if known, ok := scripts.Load(hash); ok {
		return known.(script)
	}
	s := script{title: hash[:8], publishes: strings.Contains(strings.ToLower(text), "publish")}
	for line := range strings.SplitSeq(text, "\n") {
		if comment, ok := strings.CutPrefix(line, "--"); ok {
			comment, _, _ = strings.Cut(strings.TrimSpace(comment), ". ")
			s.title = strings.TrimSuffix(comment, ".")
			break
		}
	}
	scripts.Store(hash, s)
	return s
}

// scriptOf returns the script of a command that runs one. Its title is empty if its text is unknown.
func scriptOf(verb string, args []string) (s script, isScript bool) {
	if len(args) == 0 {
		return script{}, false
	}
	switch verb {
	case "EVAL", "EVAL_RO":
		return remember(args[0]), true
	case "EVALSHA", "EVALSHA_RO":
		if known, ok := scripts.Load(strings.ToLower(args[0])); ok {
			return known.(script), true
		}
		return script{}, true
	case "FCALL", "FCALL_RO":
		return script{}, true
	}
	return script{}, false
}

// describeCommand returns a command as a person would type it, and without what differs from run to run.
func describeCommand(verb string, args []string) (text, shape string) {
	texts, shapes := []string{verb}, []string{verb}
	spec := keySpecs()[verb]
	keys := spec.keys(args)
	if s, isScript := scriptOf(verb, args); isScript {
		title := s.title
		if title == "" {
			title = args[0][:min(8, len(args[0]))]
		}
		others := args[min(len(args), 2+len(keys)):]
		texts, shapes = append(texts, "{"+title+"}", "KEYS"), append(shapes, "{"+title+"}", "KEYS")
		for _, key := range keys {
			texts, shapes = append(texts, quoteRedis(key)), append(shapes, quoteRedis(shapeKey(key)))
		}
		texts, shapes = append(texts, "ARGV"), append(shapes, "ARGV", strconv.Itoa(len(others)))
		for _, arg := range others {
			texts = append(texts, quoteRedis(arg))
		}
		return strings.Join(texts, " "), strings.Join(shapes, " ")
	}
	if verb == "AUTH" || verb == "HELLO" {
		return verb, verb // without the password
	}
	for _, arg := range args {
		texts = append(texts, quoteRedis(arg))
		switch {
		case slices.Contains(keys, arg) || spec.step == 0:
			shapes = append(shapes, quoteRedis(shapeKey(arg)))
		case isOption(arg):
			shapes = append(shapes, arg)
		default:
			shapes = append(shapes, "?")
		}
	}
	return strings.Join(texts, " "), strings.Join(shapes, " ")
}

// shapeKey replaces the words with digits in a key: ids of items, and random ones.
func shapeKey(key string) string {
	var b strings.Builder
	for len(key) > 0 {
		end := strings.IndexFunc(key, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if end < 0 {
			end = len(key)
		}
		switch word := key[:end]; {
		case end == 0:
			end = 1
			b.WriteByte(key[0])
		case strings.ContainsFunc(word, unicode.IsDigit):
			b.WriteByte('?')
		default:
			b.WriteString(word)
		}
		key = key[end:]
	}
	return b.String()
}

// isOption reports whether an argument is a word such as NX or PX.
func isOption(arg string) bool {
	return len(arg) <= 12 && arg != "" && strings.IndexFunc(arg, func(r rune) bool { return r < 'A' || r > 'Z' }) < 0
}

// quoteRedis quotes an argument if it must be quoted.
func quoteRedis(arg string) string {
	plain := func(r rune) bool { return r > ' ' && r != '"' && r != '\'' && r != '\\' && unicode.IsPrint(r) }
	if arg != "" && utf8.ValidString(arg) && strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	return strconv.Quote(arg)
}
