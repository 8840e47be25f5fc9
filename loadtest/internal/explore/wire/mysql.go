package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The commands of a client that are told apart. The response to all others is an OK, an error or a result set.
const (
	comQuit         = 0x01
	comInitDB       = 0x02
	comQuery        = 0x03
	comPing         = 0x0e
	comChangeUser   = 0x11
	comStmtPrepare  = 0x16
	comStmtExecute  = 0x17
	comStmtLongData = 0x18
	comStmtClose    = 0x19
	comStmtReset    = 0x1a
	comSetOption    = 0x1b
	comReset        = 0x1f
)

// withheld are capabilities that the server must not offer, so that responses have one format, and a proxy can read
// them: compression, requests for files of the client, TLS, no EOF packets, no metadata, zstd, attributes of queries,
// progress reports.
const withheld = 1<<5 | 1<<7 | capabilityTLS | 1<<24 | 1<<25 | 1<<26 | 1<<27 | 1<<29

const capabilityTLS = 1 << 11

// capabilityMySQL is not set by MariaDB, which offers capabilities of its own in what is reserved otherwise.
const capabilityMySQL = 1

// Status flags of the server.
const (
	statusInTrans     = 1 << 0
	statusAutocommit  = 1 << 1
	statusMoreResults = 1 << 3
)

// refused are commands whose responses are of another kind: replication, and what clients have no use for any more. No
// cursors are fetched from, because none are opened.
var refused = map[byte]string{
	0x04: "COM_FIELD_LIST", 0x09: "COM_STATISTICS", 0x12: "COM_BINLOG_DUMP", 0x1c: "COM_STMT_FETCH",
	0x1e: "COM_BINLOG_DUMP_GTID",
}

const maxPacket = 1<<24 - 1 // a packet of this length goes on in the next

// mysqlPhase is what a connection expects from its server.
type mysqlPhase int

const (
	greets   mysqlPhase = iota // the greeting
	logsIn                     // whatever, until OK or an error
	idles                      // nothing
	begins                     // the first packet of a response
	prepares                   // the definitions of a prepared statement's parameters and columns
	defines                    // the definitions of columns
	lists                      // rows, to the end
)

type mysqlSession struct {
	phase     mysqlPhase
	sql       sqlState
	answered  bool // the client has answered the greeting
	continued bool // the packet before this one was of the maximal length

	statements map[uint32]*statement
	command    byte
	preparing  string // the text of the statement that is being prepared
	prepared   uint32 // the statement that was prepared last

	binary  bool // the rows of the result
	groups  int  // of definitions to come, when preparing
	columns []column
	rows    int
	first   string   // the first row
	results []string // so far, in words
}

// statement is a prepared statement.
type statement struct {
	text   string
	params int
	types  []byte       // of the parameters: two bytes each, as last sent
	long   map[int]bool // parameters that were sent beforehand
}

func newMySQLSession(conn *Conn) *mysqlSession {
	conn.Store = "mysql"
	return &mysqlSession{statements: map[uint32]*statement{}, sql: sqlState{autocommit: true}}
}

func (s *mysqlSession) ready() bool { return s.phase > logsIn }

func (s *mysqlSession) readRequest(r *bufio.Reader) (frame, error) {
	f, err := readPacket(r)
	if err == nil && len(f.raw) == 4+maxPacket {
		return f, refuseMySQL(0, "requests of 16 MB and more cannot be explored")
	}
	return f, err
}

func (s *mysqlSession) readReply(r *bufio.Reader) (frame, error) { return readPacket(r) }

func readPacket(r *bufio.Reader) (frame, error) {
	header, err := r.Peek(4)
	if err != nil {
		return frame{}, err
	}
	size := 4 + (int(header[0]) | int(header[1])<<8 | int(header[2])<<16)
	raw, err := readN(r, make([]byte, 0, min(size, 64<<10)), size)
	return frame{raw: raw}, err
}

// refuseMySQL answers the packet with the given sequence number with an error.
func refuseMySQL(sequence byte, text string) refusal {
	body := append([]byte{0xff, 0x51, 0x04, '#'}, "HY000"+text...) // 1105: unknown error
	reply := append([]byte{byte(len(body)), byte(len(body) >> 8), 0, sequence + 1}, body...)
	return refusal{errors.New(text), reply}
}

func (s *mysqlSession) request(f frame) (*Exchange, error) {
	body := f.raw[4:]
	if s.phase == logsIn || s.phase == greets {
		if !s.answered && len(body) >= 4 {
			asked := binary.LittleEndian.Uint32(body)
			if asked&capabilityTLS != 0 {
				return nil, refuseMySQL(f.raw[3], "the client wants TLS, which the server does not offer")
			}
			// Clients may name what they know, and use only what the server knows, too.
			binary.LittleEndian.PutUint32(body, asked&^withheld)
		}
		s.answered = true
		return nil, nil
	}
	if len(body) == 0 {
		return nil, refuseMySQL(f.raw[3], "an empty packet is no request")
	}
	s.command, body = body[0], body[1:]
	if name := refused[s.command]; name != "" {
		return nil, refuseMySQL(f.raw[3], name+" cannot be explored")
	}
	switch s.command {
	case comQuit:
		return nil, nil
	case comStmtClose:
		delete(s.statements, statementID(body))
		return nil, nil
	case comStmtLongData:
		if st := s.statements[statementID(body)]; st != nil && len(body) >= 6 {
			st.long[int(binary.LittleEndian.Uint16(body[4:]))] = true
		}
		return nil, nil
	case comChangeUser:
		s.phase, s.sql, s.statements = logsIn, sqlState{autocommit: true}, map[uint32]*statement{}
		return nil, nil
	case comStmtExecute:
		if len(body) > 4 {
			body[4] = 0 // no cursor
		}
	}
	e := s.exchange(body)
	s.phase, s.binary = begins, s.command == comStmtExecute
	s.rows, s.first, s.results, s.columns = 0, "", nil, nil
	return e, nil
}

// localCommands are those that nobody else can notice, by what a person would call them.
var localCommands = map[byte]string{comPing: "PING", comSetOption: "SET OPTION"}

// exchange describes a command.
func (s *mysqlSession) exchange(body []byte) *Exchange {
	e := &Exchange{}
	switch s.command {
	case comQuery:
		s.touch(e, string(body))
	case comStmtPrepare:
		s.preparing, s.prepared = string(body), 0
		e.Text, e.Local = "PREPARE "+s.preparing, true
	case comStmtExecute:
		s.touch(e, s.execution(body))
	case comInitDB:
		s.touch(e, "USE "+string(body))
	case comReset:
		s.touch(e, "ROLLBACK")
		if s.sql.named || s.sql.locked { // which it gives back
			e.Writes, e.Local = []string{everything}, false
		}
		e.Text, s.sql = "RESET CONNECTION", sqlState{autocommit: true}
		s.statements = map[uint32]*statement{}
	case comStmtReset:
		if st := s.statements[statementID(body)]; st != nil {
			clear(st.long)
		}
		e.Text, e.Local = "RESET STATEMENT", true
	default:
		if e.Text, e.Local = localCommands[s.command]; !e.Local {
			e.Text, e.Writes = fmt.Sprintf("command %#02x", s.command), []string{everything}
			e.Parts = "the command is not known"
		}
	}
	return e
}

func (s *mysqlSession) touch(e *Exchange, text string) {
	effect := s.sql.analyse(tokenize(text))
	e.Text = strings.TrimSpace(text)
	if !legible(e.Text) {
		e.Text = replaceTokens(e.Text, tokenize(e.Text), func(t token) (string, bool) {
			return " " + quoteSQL([]byte(t.text)), t.kind == literal && !legible(t.text)
		})
	}
	e.Reads, e.Writes, e.Local = effect.reads, effect.writes, effect.local
	e.Parts, e.Several = effect.parts, effect.several
}

func statementID(body []byte) uint32 {
	if len(body) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(body)
}

// execution returns a prepared statement with its arguments.
func (s *mysqlSession) execution(body []byte) string {
	id := statementID(body)
	if id == math.MaxUint32 { // MariaDB's clients may send it before they know the id
		id = s.prepared
	}
	st := s.statements[id]
	if st == nil {
		return fmt.Sprintf("EXECUTE %d", statementID(body))
	}
	defer clear(st.long)
	c := cursor{b: body}
	c.take(9) // the id, flags, and the number of iterations
	if st.params == 0 {
		return st.text
	}
	nulls := c.take((st.params + 7) / 8)
	if c.integer(1) == 1 {
		st.types = bytes.Clone(c.take(2 * st.params))
	}
	var args []string
	for i := range st.params {
		switch {
		case st.long[i]:
			args = append(args, "'(long)'")
		case c.bad || 2*i+1 >= len(st.types):
			args = append(args, "?")
		case nulls[i/8]&(1<<(i%8)) != 0:
			args = append(args, "NULL")
		default:
			args = append(args, c.value(column{st.types[2*i], st.types[2*i+1]&0x80 != 0}))
		}
	}
	return interpolate(st.text, args)
}

func (s *mysqlSession) reply(f frame, e *Exchange) meaning {
	body := f.raw[4:]
	continues := s.continued
	s.continued = len(body) == maxPacket
	if continues || s.continued { // part of a row: all other packets are short
		if e == nil {
			return aside
		}
		if !continues {
			s.rows++
		}
		return partial
	}
	switch {
	case s.phase == greets:
		withhold(body)
		s.phase = logsIn
		return aside
	case s.phase == logsIn:
		if len(body) > 0 && (body[0] == 0 || body[0] == 0xff) {
			s.phase = idles
			if status, _, ok := okPacket(body); ok {
				s.sql.status(status)
			}
		}
		return aside
	case e == nil || s.phase == idles:
		return aside // such as the error that tells that the connection was killed
	}
	if s.packet(body) {
		return partial
	}
	s.phase = idles
	e.Reply = strings.Join(s.results, "; ")
	return final
}

// withhold takes capabilities out of the greeting.
func withhold(body []byte) {
	version := bytes.IndexByte(body, 0)
	if version < 0 || len(body) < version+32 || body[0] != 10 {
		return // an error, such as too many connections
	}
	rest := body[version+1:]
	low, high := rest[13:], rest[18:]
	offered := uint32(binary.LittleEndian.Uint16(low)) | uint32(binary.LittleEndian.Uint16(high))<<16
	offered &^= withheld
	binary.LittleEndian.PutUint16(low, uint16(offered))
	binary.LittleEndian.PutUint16(high, uint16(offered>>16))
	if offered&capabilityMySQL == 0 {
		clear(rest[27:31])
	}
}

// packet reads a packet of a response, and reports whether more follow.
func (s *mysqlSession) packet(body []byte) (more bool) {
	if len(body) == 0 {
		body = []byte{0}
	}
	isEOF := body[0] == 0xfe && len(body) < 9
	if body[0] == 0xff {
		s.failed(body)
		return false
	}
	switch s.phase {
	case begins:
		return s.begin(body, isEOF)
	case prepares:
		if isEOF {
			s.groups--
		}
		return s.groups > 0
	case defines:
		if !isEOF {
			s.columns = append(s.columns, columnOf(body))
			return true
		}
		s.phase = lists
		return true
	default:
		return s.list(body, isEOF)
	}
}

// begin reads the first packet of a response, or of one of several results.
func (s *mysqlSession) begin(body []byte, isEOF bool) (more bool) {
	switch {
	case s.command == comStmtPrepare:
		c := cursor{b: body[1:]}
		id, columns, params := c.integer(4), c.integer(2), c.integer(2)
		s.prepared = uint32(id)
		s.statements[s.prepared] = &statement{
			text: s.preparing, params: int(params), long: map[int]bool{},
		}
		s.results = append(s.results, "OK")
		s.phase, s.groups = prepares, min(int(columns), 1)+min(int(params), 1)
		return s.groups > 0
	case body[0] == 0 || isEOF:
		status, rows, _ := okPacket(body)
		s.sql.status(status)
		text := "OK"
		if rows > 0 || s.command == comQuery || s.command == comStmtExecute {
			text = "OK, " + countRows(int(rows))
		}
		s.results = append(s.results, text)
		return status&statusMoreResults != 0
	}
	s.phase, s.columns, s.rows, s.first = defines, s.columns[:0], 0, ""
	return true
}

// list reads a row, or the end of the rows.
func (s *mysqlSession) list(body []byte, isEOF bool) (more bool) {
	if !isEOF {
		s.rows++
		if s.rows == 1 {
			s.first = s.row(body)
		}
		return true
	}
	text := countRows(s.rows)
	if s.rows > 0 && s.first != "" {
		text += ": " + s.first
	}
	s.results = append(s.results, text)
	status, _, _ := okPacket(body)
	s.sql.status(status)
	s.phase = begins
	return status&statusMoreResults != 0
}

func (s *mysqlSession) failed(body []byte) {
	c := cursor{b: body[1:]}
	number := c.integer(2)
	text := string(c.b)
	if strings.HasPrefix(text, "#") && len(text) >= 6 {
		text = text[6:]
	}
	s.sql.failed(int(number))
	s.results = append(s.results, fmt.Sprintf("error %d: %s", number, text))
}

// row returns the values of a row.
func (s *mysqlSession) row(body []byte) string {
	c := cursor{b: body}
	var nulls []byte
	if s.binary {
		c.take(1)
		nulls = c.take((len(s.columns) + 2 + 7) / 8)
	}
	var values []string
	for i, column := range s.columns {
		switch {
		case c.bad:
			return strings.Join(values, ", ")
		case !s.binary && len(c.b) > 0 && c.b[0] == 0xfb:
			c.take(1)
			values = append(values, "NULL")
		case s.binary && nulls[(i+2)/8]&(1<<((i+2)%8)) != 0:
			values = append(values, "NULL")
		case s.binary:
			values = append(values, shorten(c.value(column)))
		case column.numeric():
			values = append(values, string(c.text()))
		default:
			values = append(values, shorten(quoteSQL(c.text())))
		}
	}
	return strings.Join(values, ", ")
}

// okPacket returns the status and the number of affected rows of an OK or EOF packet.
func okPacket(body []byte) (status int, rows uint64, ok bool) {
	if len(body) == 0 || body[0] == 0xff {
		return 0, 0, false
	}
	c := cursor{b: body[1:]}
	if body[0] == 0xfe {
		c.take(2)
	} else {
		rows = c.length()
		c.length() // the last id
	}
	status = int(c.integer(2))
	return status, rows, !c.bad
}

func countRows(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// shorten keeps a reply legible.
func shorten(s string) string {
	const longest = 60
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}
