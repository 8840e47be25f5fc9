// Package wire cuts the connections between a service and its stores into exchanges, and holds each one until it is
// told what becomes of it. An exchange is one request of a client with the server's whole response. The protocols are
// those of MySQL (text and prepared statements), of Redis (RESP2 and RESP3, also pipelines) and of PostgreSQL (simple
// and extended). Connections are not encrypted.
package wire

import "regexp"

// Exchange is one request of a client, which is held until Gate.Arrive returns.
type Exchange struct {
	Conn  *Conn
	Store string // "mysql", "redis" or "postgres"

	// Text is the statement with its arguments, or the commands of a pipeline, one in each line, as a person would type
	// them.
	Text string

	// Reads and Writes name what it touches: a table, a key, a named lock, with the store before it, such as
	// "mysql:good_stock", "redis:stock:{1}", "mysql:lock:x". "*" is everything in all stores. For the statement that
	// ends a transaction, they are those of the whole transaction. Names of items in keys stay as they are.
	// The first plain read of a transaction at REPEATABLE READ reads "*": what has been committed by then is what the
	// transaction will see. What the text does not show is missing: triggers, foreign keys, what is behind a view. A call
	// of a function that is not known touches "*". So does every statement of PostgreSQL that is not local: its text does
	// not tell what it touches, because of triggers, foreign keys and SERIALIZABLE.
	Reads, Writes []string
	// Local reports that no other connection can notice whether and when it is executed, unless it is lost: BEGIN, SET of
	// the session, PREPARE, PING, and what opens a connection: HELLO, AUTH, SET NAMES.
	Local bool
	// Blocks reports that Redis may answer it only when something has happened, and drops it when its client hangs up:
	// BLPOP.
	Blocks bool

	// Parts says why the server may execute it in several parts, so that other sessions come in between; empty: its text
	// does not show that it does. Several reports that it has several statements or commands that are not one
	// transaction. See also Names.
	Parts   string
	Several bool

	noted func() // see Noted

	// Reply is what the server answered, in a few words: "1 row: 5", "OK, 1 row", "error 1213: Deadlock found". It is set
	// before Gate.Answered.
	Reply string
}

// varying matches what differs from run to run: literals, and words with digits, such as numbers and random values.
var varying = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\pL\p{Nd}]*\p{Nd}[\pL\p{Nd}.]*`)

// Shape returns Text with question marks for what differs from run to run.
func (e *Exchange) Shape() string { return varying.ReplaceAllString(e.Text, "?") }

// Noted is to be called by Gate.Arrive when everybody can see that the exchange is held. Until then, the proxy is busy.
func (e *Exchange) Noted() {
	if e.noted != nil {
		e.noted()
	}
}

// Conn is a connection of a client.
type Conn struct {
	Store string // "mysql", "redis" or "postgres"
	PID   uint32 // of the process of PostgreSQL that serves it
}

// Action is what becomes of an exchange.
type Action int

const (
	Pass      Action = iota // execute it, and pass the response on
	LoseBoth                // cut the connection instead of executing it
	LoseReply               // execute it, wait for its whole response, and cut the connection instead of passing it on
)

// Gate decides about exchanges. Its methods must be safe for concurrent use: those of several connections are called
// side by side, and Heard also while Arrive holds a request of the same connection.
type Gate interface {
	// Arrive is called with each request, and blocks until it is decided what becomes of it. The request does not reach
	// the server before. It must return when gone is closed: the client, the server or the proxy has closed the
	// connection. If only the client has, a request that is let through after that is still executed.
	Arrive(e *Exchange, gone <-chan struct{}) Action
	// Answered is called once after each Arrive: when the server has answered, before the client gets the response; or,
	// with an error, when the connection has ended before that, also because of LoseBoth.
	Answered(e *Exchange, err error)
	// Heard is called when the server sends what answers no request, such as messages of a subscription, before the
	// client gets it. It is called once more when the connection has ended, after everything else about it.
	Heard()
}
