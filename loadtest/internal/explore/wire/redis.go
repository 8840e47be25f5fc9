package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Limits of what a client may send, so that garbage takes no memory.
const (
	maxCommands = 1 << 20 // arguments of a command
	maxArgument = 64 << 20
	maxLine     = 64 << 10
	maxNesting  = 64 // of replies
)

type redisSession struct {
	server *redis.Client // tells the keys of commands
	transaction

	expected []string // the commands whose replies have to come, in lower case
	resp3    bool
	broken   error // why no more commands can be read; only readRequest uses it

	subscribes bool     // it has subscribed to something, so that messages may arrive
	replies    []string // to the commands so far, in words
}

func newRedisSession(conn *Conn, server *redis.Client) *redisSession {
	conn.Store = "redis"
	return &redisSession{server: server}
}

func refuseRedis(text string) refusal {
	return refusal{errors.New(text), []byte("-ERR " + text + "\r\n")}
}

// readRequest reads a command, and those that have arrived with it.
func (s *redisSession) readRequest(r *bufio.Reader) (frame, error) {
	if s.broken != nil {
		return frame{}, s.broken
	}
	var f frame
	for {
		whole := len(f.raw)
		command, err := readCommand(r, &f.raw)
		if err != nil && len(f.commands) > 0 {
			f.raw, s.broken = f.raw[:whole], err
			return f, nil
		}
		if err != nil {
			return f, err
		}
		if len(command) > 0 {
			f.commands = append(f.commands, command)
		}
		if r.Buffered() == 0 && len(f.commands) > 0 {
			return f, nil
		}
	}
}

// readCommand reads a command, and appends its bytes to raw. An empty line is no command, and has no reply.
func readCommand(r *bufio.Reader, raw *[]byte) (command []string, err error) {
	line, err := readLine(r, raw)
	if err != nil {
		return nil, err
	}
	if line == "" || line[0] != '*' {
		return strings.Fields(line), nil
	}
	count, err := strconv.Atoi(line[1:])
	if err != nil || count > maxCommands {
		return nil, refuseRedis("Protocol error: invalid multibulk length")
	}
	for range count {
		line, err := readLine(r, raw)
		if err != nil {
			return nil, err
		}
		size := -1
		if strings.HasPrefix(line, "$") {
			size, err = strconv.Atoi(line[1:])
		}
		if err != nil || size < 0 || size > maxArgument {
			return nil, refuseRedis("Protocol error: invalid bulk length; arguments of more than 64 MB cannot be explored")
		}
		if *raw, err = readN(r, *raw, size+2); err != nil {
			return nil, err
		}
		command = append(command, string((*raw)[len(*raw)-size-2:len(*raw)-2]))
	}
	return command, nil
}

// readLine reads a line, appends its bytes to raw, and returns it without its end.
func readLine(r *bufio.Reader, raw *[]byte) (string, error) {
	from := len(*raw)
	for {
		part, err := r.ReadSlice('\n')
		*raw = append(*raw, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(*raw)-from < maxLine {
			continue
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return "", refuseRedis("Protocol error: too big inline request")
		}
		return strings.TrimRight(string((*raw)[from:]), "\r\n"), err
	}
}

// value is one of a reply.
type value struct {
	kind byte // the sign of its type in RESP3; nil is '_'
	text string
	list []value
}

// readReply reads one value.
func (s *redisSession) readReply(r *bufio.Reader) (f frame, err error) {
	f.value, err = readValue(r, &f.raw, maxNesting)
	return f, err
}

func readValue(r *bufio.Reader, raw *[]byte, depth int) (v value, err error) {
	line, err := readLine(r, raw)
	if err != nil {
		return v, err
	}
	if line == "" || depth == 0 {
		return v, io.ErrUnexpectedEOF
	}
	v = value{kind: line[0], text: line[1:]}
	count := 0
	switch v.kind {
	case '$', '!', '=', '*', '~', '>', '%', '|':
		if count, err = strconv.Atoi(v.text); err != nil || count < 0 {
			return value{kind: '_'}, err
		}
	}
	switch v.kind {
	case '$', '!', '=':
		if *raw, err = readN(r, *raw, count+2); err == nil {
			v.text = string((*raw)[len(*raw)-count-2 : len(*raw)-2])
		}
		return v, err
	case '%', '|':
		count *= 2
	}
	for range count {
		element, err := readValue(r, raw, depth-1)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, element)
	}
	if v.kind == '|' { // attributes precede the value
		return readValue(r, raw, depth-1)
	}
	return v, nil
}

func (s *redisSession) request(f frame) (*Exchange, error) {
	s.expected, s.replies = s.expected[:0], s.replies[:0]
	for _, command := range f.commands {
		verb := strings.ToUpper(command[0])
		switch verb {
		case "MONITOR", "SYNC", "PSYNC":
			return nil, refuseRedis(verb + " cannot be explored")
		case "HELLO", "RESET":
			s.resp3, s.subscribes = false, s.subscribes && verb != "RESET" // resp3: until a reply shows it
		case "CLIENT":
			if len(command) > 2 && strings.EqualFold(command[1], "REPLY") && !strings.EqualFold(command[2], "ON") {
				return nil, refuseRedis("CLIENT REPLY cannot be explored")
			}
		}
		s.subscribes = s.subscribes || confirmed[strings.ToLower(verb)]
		s.expected = append(s.expected, strings.ToLower(verb))
	}
	return s.exchange(f.commands), nil
}

func (s *redisSession) ready() bool { return true }

// confirmed are the commands that the server confirms once for each channel. The first confirmation is the reply, and
// the others are pushed.
var confirmed = map[string]bool{
	"subscribe": true, "psubscribe": true, "ssubscribe": true,
	"unsubscribe": true, "punsubscribe": true, "sunsubscribe": true,
}

func (s *redisSession) reply(f frame, e *Exchange) meaning {
	kind, first := f.value.kind, ""
	s.resp3 = s.resp3 || kind == '>' || kind == '%'
	if e == nil || len(s.expected) == 0 {
		return pushed
	}
	if len(f.value.list) > 0 {
		first = f.value.list[0].text
	}
	isPush := kind == '>' || !s.resp3 && s.subscribes && (confirmed[first] || strings.HasSuffix(first, "message"))
	if isPush && (!confirmed[first] || first != s.expected[0]) {
		return pushed
	}
	s.expected = s.expected[1:]
	s.replies = append(s.replies, f.value.String())
	if len(s.expected) > 0 {
		return partial
	}
	e.Reply = shorten(strings.Join(s.replies, "; "))
	return final
}

// String returns a value in words. Of a long list, it returns the beginning.
func (v value) String() string {
	switch v.kind {
	case '-':
		return "error " + v.text
	case '_':
		return "nil"
	case '#':
		return map[string]string{"t": "true", "f": "false"}[v.text]
	case '$', '!', '=':
		return quoteRedis(v.text)
	case '*', '~', '>', '%':
	default:
		return v.text
	}
	const most = 8
	var elements []string
	for _, element := range v.list[:min(len(v.list), most)] {
		elements = append(elements, element.String())
	}
	if len(v.list) > most {
		elements = append(elements, fmt.Sprintf("… %d in all", len(v.list)))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}
