package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// The codes of requests to encrypt a connection, which stand in the place of a version of the protocol.
const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

const (
	maxStartup = 10_000 // bytes of what opens a connection, as in PostgreSQL
	maxMessage = 1 << 30
)

type postgresSession struct {
	conn    *Conn
	started bool // the client has sent the version of the protocol; only readRequest uses it
	greeted bool // the same, for the other goroutine
	usable  bool // the client has logged in
	sql     postgresState
	types   *pgtype.Map

	statements map[string]*prepared
	portals    map[string]*portal

	// Of the exchange that is under way.
	asked    []asked // messages of the client, in order, that the server has not answered yet
	flushes  bool    // the response ends with the answer to the last message, and not with ReadyForQuery
	extended bool    // it has messages of the extended protocol
	skips    bool    // after an error, the server ignores everything until Sync
	columns  []pgproto3.FieldDescription
	rows     int
	first    string   // the first row
	results  []string // so far, in words
}

// prepared is a prepared statement.
type prepared struct {
	text    string
	params  []uint32 // types; 0: unknown
	columns []pgproto3.FieldDescription
}

// portal is a prepared statement with its arguments.
type portal struct {
	*prepared
	text    string
	formats []int16 // of the columns
}

// asked is what a message of the extended protocol is about.
type asked struct {
	statement *prepared // that it describes
	portal    *portal   // that it executes
}

func newPostgresSession(conn *Conn) *postgresSession {
	conn.Store = "postgres"
	return &postgresSession{
		conn: conn, types: pgtype.NewMap(), statements: map[string]*prepared{}, portals: map[string]*portal{},
	}
}

func (s *postgresSession) ready() bool { return s.usable }

// readRequest reads a message. Messages of the extended protocol belong together up to Sync or Flush: the server sends
// no answer before.
func (s *postgresSession) readRequest(r *bufio.Reader) (f frame, err error) {
	if !s.started {
		return s.readStartup(r)
	}
	for {
		at := len(f.raw)
		if f.raw, err = readMessage(r, f.raw, 1, maxMessage); err != nil || !strings.ContainsRune("PBDEC", rune(f.raw[at])) {
			return f, err
		}
	}
}

// readStartup reads what opens a connection. Nobody could read a connection that is encrypted.
func (s *postgresSession) readStartup(r *bufio.Reader) (f frame, err error) {
	if f.raw, err = readMessage(r, nil, 0, maxStartup); err != nil {
		return f, err
	}
	if len(f.raw) < 8 {
		return f, refusePostgres("this is no message of PostgreSQL's protocol")
	}
	switch binary.BigEndian.Uint32(f.raw[4:]) {
	case sslRequest, gssEncRequest:
		f.answer = []byte("N")
	default:
		s.started = true
	}
	return f, nil
}

func (s *postgresSession) readReply(r *bufio.Reader) (f frame, err error) {
	f.raw, err = readMessage(r, nil, 1, maxMessage)
	return f, err
}

// readMessage reads a message whose length stands after some bytes, and appends it to raw.
func readMessage(r *bufio.Reader, raw []byte, before, most int) ([]byte, error) {
	header, err := r.Peek(before + 4)
	if err != nil {
		return raw, err
	}
	length := int(binary.BigEndian.Uint32(header[before:]))
	if length < 4 || length > most {
		return raw, refusePostgres("this is no message of PostgreSQL's protocol")
	}
	return readN(r, raw, before+length)
}

func refusePostgres(text string) refusal {
	reply, _ := (&pgproto3.ErrorResponse{ // it is short enough to be encoded
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "0A000", Message: text,
	}).Encode(nil)
	return refusal{errors.New(text), reply}
}

func (s *postgresSession) request(f frame) (*Exchange, error) {
	if !s.usable {
		return nil, s.opens(f)
	}
	last := lastOf(f.raw)
	if s.skips || strings.ContainsRune("Xdcf", rune(last)) { // what is left of a COPY that has failed
		return nil, nil
	}
	s.asked, s.flushes, s.extended = nil, last == 'H', last == 'H' || last == 'S'
	s.columns, s.rows, s.first, s.results = nil, 0, "", nil
	b := batch{local: true}
	for raw := f.raw; len(raw) > 0; {
		length := 1 + int(binary.BigEndian.Uint32(raw[1:]))
		m, err := pgproto3.NewBackend(bytes.NewReader(raw[:length]), nil).Receive()
		if err != nil {
			return nil, refusePostgres("a message cannot be read: " + err.Error())
		}
		s.add(&b, m)
		raw = raw[length:]
	}
	if s.flushes && len(s.asked) == 0 {
		return nil, nil // nothing is left to be answered
	}
	e := &Exchange{
		Text:  cmp.Or(strings.Join(b.executed, "; "), strings.Join(b.prepares, "; "), "SYNC"),
		Local: b.local,
	}
	if !e.Local {
		e.Reads, e.Writes = []string{everything}, []string{everything}
		e.Parts, e.Several = PartsOfPostgres(strings.Join(b.executed, ";\n"))
	}
	return e, nil
}

// opens reads what a client sends until it has logged in.
func (s *postgresSession) opens(f frame) error {
	if s.greeted {
		return nil // a password
	}
	s.greeted = true
	m, err := pgproto3.NewBackend(bytes.NewReader(f.raw), nil).ReceiveStartupMessage()
	if err != nil {
		return refusePostgres("only version 3 of the protocol can be explored: " + err.Error())
	}
	startup, ok := m.(*pgproto3.StartupMessage)
	if !ok {
		return nil // it cancels a statement of another connection
	}
	if startup.Parameters["replication"] != "" {
		return refusePostgres("replication cannot be explored")
	}
	for name, value := range startup.Parameters {
		s.sql.isolate(name + " " + value)
	}
	return nil
}

// lastOf returns the first byte of the last of some messages.
func lastOf(raw []byte) (kind byte) {
	for len(raw) >= 5 {
		kind = raw[0]
		raw = raw[min(1+int(binary.BigEndian.Uint32(raw[1:])), len(raw)):]
	}
	return kind
}

// batch is what the messages of an exchange do.
type batch struct {
	executed, prepares []string // statements
	local              bool
}

// add adds a message to what an exchange does, and notes what the server will answer.
func (s *postgresSession) add(b *batch, m pgproto3.FrontendMessage) {
	var a asked
	switch m := m.(type) {
	case *pgproto3.Query:
		s.execute(b, m.String)
		return
	case *pgproto3.FunctionCall:
		s.execute(b, fmt.Sprintf("CALL (the function with OID %d)", m.Function))
		return
	case *pgproto3.Parse:
		b.prepares = append(b.prepares, "PREPARE "+strings.TrimSpace(m.Query))
		b.local = s.sql.look() && b.local
		s.statements[m.Name] = &prepared{text: m.Query, params: slices.Clone(m.ParameterOIDs)}
	case *pgproto3.Bind:
		s.portals[m.DestinationPortal] = s.bind(m)
	case *pgproto3.Describe:
		a.statement = s.statements[m.Name]
		if m.ObjectType == 'P' {
			a.statement = s.portal(m.Name).prepared
		}
	case *pgproto3.Execute:
		a.portal = s.portal(m.Portal)
		s.execute(b, a.portal.text)
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(s.statements, m.Name)
		}
	case *pgproto3.Sync:
		if !s.sql.open && s.sql.changed { // it commits what was executed before a Flush
			b.local = false
			if len(b.executed) == 0 {
				s.execute(b, "COMMIT")
			}
		}
		return
	default:
		return
	}
	s.asked = append(s.asked, a)
}

func (s *postgresSession) execute(b *batch, text string) {
	b.executed = append(b.executed, strings.TrimRight(strings.TrimSpace(text), "; \t\r\n"))
	b.local = s.sql.analyse(text) && b.local
}

// portal returns a portal. One that is not known is the cursor of a DECLARE, or does not exist.
func (s *postgresSession) portal(name string) *portal {
	if p := s.portals[name]; p != nil {
		return p
	}
	return &portal{prepared: &prepared{}, text: "FETCH ALL FROM " + name}
}

// bind returns a prepared statement with its arguments.
func (s *postgresSession) bind(m *pgproto3.Bind) *portal {
	statement := s.statements[m.PreparedStatement]
	if statement == nil {
		return &portal{prepared: &prepared{}, text: "EXECUTE " + m.PreparedStatement}
	}
	p := &portal{prepared: statement, formats: slices.Clone(m.ResultFormatCodes)}
	p.text = ReplaceParameters(statement.text, func(n int) (string, bool) {
		if n < 1 || n > len(m.Parameters) {
			return "", false
		}
		var kind uint32
		if n <= len(statement.params) {
			kind = statement.params[n-1]
		}
		return s.literal(kind, format(m.ParameterFormatCodes, n-1), m.Parameters[n-1]), true
	})
	return p
}

// format returns the format of the i-th value: one format may stand for all, and none for text.
func format(codes []int16, i int) int16 {
	switch {
	case len(codes) == 1:
		return codes[0]
	case i < len(codes):
		return codes[i]
	}
	return pgtype.TextFormatCode
}

func (s *postgresSession) reply(f frame, e *Exchange) meaning {
	switch kind := f.raw[0]; {
	case !s.usable || kind == 'Z' && e == nil: // e: nothing was asked but to Sync after an error
		s.loggingIn(f.raw)
		return aside
	case kind == 'A':
		return pushed
	case e == nil:
		return aside // such as the error that tells that the connection was ended
	case kind == 'G' || kind == 'W':
		return asks
	default:
		s.answers(kind, f.raw, e)
		if kind == 'Z' || s.flushes && len(s.asked) == 0 {
			e.Reply = strings.Join(s.results, "; ")
			return final
		}
		return partial
	}
}

// loggingIn reads what the server sends until it is ready, or when it is ready again.
func (s *postgresSession) loggingIn(raw []byte) {
	switch m := fromServer(raw).(type) {
	case *pgproto3.BackendKeyData:
		s.conn.PID = m.ProcessID
	case *pgproto3.ReadyForQuery:
		s.usable, s.skips = true, false
		s.sql.ready(m.TxStatus)
	}
}

// fromServer returns a message; nil if it cannot be read.
func fromServer(raw []byte) pgproto3.BackendMessage {
	m, err := pgproto3.NewFrontend(bytes.NewReader(raw), nil).Receive()
	if err != nil {
		return nil
	}
	return m
}

// answers reads a part of a response.
func (s *postgresSession) answers(kind byte, raw []byte, e *Exchange) {
	var now asked
	if len(s.asked) > 0 {
		now = s.asked[0]
	}
	if kind == 'D' {
		s.rows++
	}
	if s.rows > 1 && kind == 'D' {
		return // other rows than the first are only counted
	}
	switch m := fromServer(raw).(type) {
	case *pgproto3.DataRow:
		s.first = s.row(m, now.portal)
		return
	case *pgproto3.RowDescription:
		s.columns = slices.Clone(m.Fields)
		if now.statement != nil {
			now.statement.columns = s.columns
		}
		if !s.extended {
			return
		}
	case *pgproto3.ParameterDescription:
		if now.statement != nil {
			now.statement.params = slices.Clone(m.ParameterOIDs)
		}
		return
	case *pgproto3.CommandComplete:
		s.completes(string(m.CommandTag), now.portal, e)
	case *pgproto3.PortalSuspended:
		s.completes("SELECT", now.portal, e)
	case *pgproto3.EmptyQueryResponse:
		s.results = append(s.results, "OK")
	case *pgproto3.ErrorResponse:
		s.results = append(s.results, fmt.Sprintf("error %s: %s", m.Code, m.Message))
		s.asked, s.skips = nil, s.flushes
		return
	case *pgproto3.ReadyForQuery:
		s.sql.ready(m.TxStatus)
	case *pgproto3.ParseComplete, *pgproto3.BindComplete, *pgproto3.CloseComplete, *pgproto3.NoData:
	default:
		return
	}
	s.asked = s.asked[min(1, len(s.asked)):]
}

// completes adds the result of a statement.
func (s *postgresSession) completes(tag string, p *portal, e *Exchange) {
	columns := s.columns
	if p != nil {
		columns = p.columns
	}
	count, err := strconv.Atoi(tag[strings.LastIndexByte(tag, ' ')+1:])
	text := "OK"
	switch commits := strings.ToUpper(e.Text); {
	case s.rows > 0 && s.first != "":
		text = countRows(s.rows) + ": " + s.first
	case s.rows > 0 || len(columns) > 0:
		text = countRows(s.rows)
	case err == nil:
		text = "OK, " + countRows(count)
	case tag == "ROLLBACK" && (strings.HasPrefix(commits, "COMMIT") || strings.HasPrefix(commits, "END")):
		text = tag // the transaction had failed
	}
	s.results = append(s.results, text)
	s.rows, s.first, s.columns = 0, "", nil
}

// row returns the values of a row.
func (s *postgresSession) row(m *pgproto3.DataRow, p *portal) string {
	columns := s.columns
	if p != nil {
		columns = p.columns
	}
	var values []string
	for i, raw := range m.Values {
		var kind uint32
		var code int16
		if i < len(columns) {
			kind, code = columns[i].DataTypeOID, columns[i].Format
		}
		if p != nil {
			code = format(p.formats, i)
		}
		values = append(values, shorten(s.literal(kind, code, raw)))
	}
	return strings.Join(values, ", ")
}
