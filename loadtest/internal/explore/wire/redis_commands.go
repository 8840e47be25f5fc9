package wire

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	keyPrefix = "redis:"
	// channels stands for all channels of messages: a script does not show to which it sends.
	channels = "redis:channel:*"
)

// transaction is what is known about MULTI and WATCH.
type transaction struct {
	inMulti bool
	watched names
	queued  effect // of the commands since MULTI
}

// exchange describes the commands of a pipeline.
func (s *redisSession) exchange(commands [][]string) *Exchange {
	e := &Exchange{Local: true}
	var reads, writes names
	var texts []string
	for _, command := range commands {
		verb, args := strings.ToUpper(command[0]), command[1:]
		one, keys := s.command(verb, args)
		reads.add(one.reads...)
		writes.add(one.writes...)
		e.Several = e.Several || !e.Local && !one.local
		e.Local = e.Local && one.local
		e.Blocks = e.Blocks || blocks(verb, args)
		texts = append(texts, describeCommand(verb, args, keys))
	}
	e.Reads, e.Writes = reads, writes
	e.Text = strings.Join(texts, "\n")
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

// command tells what a command touches, with its keys, and keeps the books about MULTI and WATCH.
func (s *redisSession) command(verb string, args []string) (e effect, keys []string) {
	switch verb {
	case "MULTI":
		s.inMulti, s.queued = true, effect{}
		return effect{local: true}, nil
	case "EXEC":
		e = s.queued
		e.reads.add(s.watched...)
		s.transaction = transaction{}
		return e, nil
	case "DISCARD", "RESET":
		s.transaction = transaction{}
		return effect{local: true}, nil
	case "UNWATCH":
		s.watched = nil
		return effect{local: true}, nil
	}
	e, known := withoutKeys(verb, args)
	if !known {
		e, keys = s.keysOf(verb, args)
	}
	switch {
	case s.inMulti:
		s.queued.reads.add(e.reads...)
		s.queued.writes.add(e.writes...)
		return effect{local: true}, keys
	case verb == "WATCH":
		s.watched.add(e.reads...)
	}
	return e, keys
}

// keysOf asks the server for the keys of a command, and what the command does with them. A command of which the server
// knows no keys may touch everything. Servers before Redis 7.0 do not tell what only reads.
func (s *redisSession) keysOf(verb string, args []string) (e effect, keys []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	command := []any{verb}
	for _, arg := range args {
		command = append(command, arg)
	}
	answers, err := s.server.Do(ctx, append([]any{"COMMAND", "GETKEYSANDFLAGS"}, command...)...).Slice()
	if err != nil {
		answers, err = s.server.Do(ctx, append([]any{"COMMAND", "GETKEYS"}, command...)...).Slice()
	}
	if err != nil {
		return touchesAll(), nil
	}
	for _, answer := range answers {
		reads := false
		if pair, ok := answer.([]any); ok && len(pair) == 2 {
			answer = pair[0]
			reads = strings.Contains(fmt.Sprint(pair[1]), "RO") && verb != "XREADGROUP" // which notes what it hands out
		}
		key := fmt.Sprint(answer)
		keys = append(keys, key)
		if reads {
			e.reads.add(keyPrefix + key)
		} else {
			e.writes.add(keyPrefix + key)
		}
	}
	if script, is := scriptOf(verb, args); is && (script.publishes || script.title == "") {
		e.writes.add(channels)
	}
	return e, keys
}

// withoutKeys tells what a command touches that is not about keys.
func withoutKeys(verb string, args []string) (e effect, known bool) {
	subcommand := ""
	if len(args) > 0 {
		subcommand = strings.ToUpper(args[0])
	}
	switch verb {
	case "HELLO", "AUTH", "SELECT", "READONLY", "READWRITE", "COMMAND", "QUIT", "PING", "ECHO", "TIME", "LASTSAVE":
		return effect{local: true}, true
	case "CLIENT":
		own := subcommand != "KILL" && subcommand != "UNBLOCK"
		return effect{local: true}, own
	case "WAIT", "WAITAOF", "ROLE":
		return effect{}, true // their answers depend on other servers
	case "SCRIPT":
		if subcommand == "LOAD" && len(args) > 1 {
			remember(args[1])
			return effect{local: true}, true
		}
		return effect{local: true}, subcommand == "EXISTS"
	case "INFO", "DBSIZE", "SCAN", "KEYS", "RANDOMKEY", "PUBSUB", "PSUBSCRIBE", "PUNSUBSCRIBE":
		return effect{reads: names{everything}}, true
	case "SORT", "SORT_RO": // by keys and of keys that the server does not tell
		return touchesAll(), true
	case "PUBLISH", "SPUBLISH":
		return effect{writes: names{channels}}, true
	case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE":
		return effect{reads: names{channels}}, true
	}
	return effect{}, false
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

// describeCommand returns a command as a person would type it. A script has its title, without the number of its keys.
func describeCommand(verb string, args, keys []string) string {
	words := []string{verb}
	if s, isScript := scriptOf(verb, args); isScript {
		title := cmp.Or(s.title, args[0][:min(8, len(args[0]))])
		words = append(words, "{"+title+"}", "KEYS")
		for _, key := range keys {
			words = append(words, quoteRedis(key))
		}
		words, args = append(words, "ARGV"), args[min(len(args), 2+len(keys)):]
	}
	if verb == "AUTH" || verb == "HELLO" {
		return verb // without the password
	}
	for _, arg := range args {
		words = append(words, quoteRedis(arg))
	}
	return strings.Join(words, " ")
}

// quoteRedis quotes an argument if it must be quoted.
func quoteRedis(arg string) string {
	plain := func(r rune) bool { return r > ' ' && r != '"' && r != '\'' && r != '\\' && unicode.IsPrint(r) }
	if arg != "" && utf8.ValidString(arg) && strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	return strconv.Quote(arg)
}
