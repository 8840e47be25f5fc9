// Package contract states once how a stock service must answer, as docs/http-api.md promises it: a model gives the
// right answers to each request in each state. The package makes up sequences of requests, plays them on a real
// service, compares every answer and every stock with the model, and shortens a sequence that fails to a few requests.
//
// The layers are those of the robustness tests of etcd: a pure step from a state and a request to answers and states,
// and a thin one that keeps every state that the answers so far allow. Requests are read and written as text:
//
//	set 10a             an administrator sets the stock of item a
//	restock 5a          adds units to it, in the stores of the strategy
//	sell 3a k           sells 3 units of item a, with the key k; without a key: sell 3a
//	order 1a,2b k       sells units of several items
//	hold 3a x k         makes the reservation x; hold 3a x for 2m: with another time than the usual one
//	confirm x, release x, find x
//	cancel k            cancels the sale with the key k; cancel k 2: 2 units of its only item; cancel k 1a,2b
//	look k              reads the sale with the key k
//	later 30s           time passes
//	prune               a week passes, and an administrator deletes what is old
//
// A request after "try" does not wait for locks or rows, and one after "work" stays in the critical section for a
// millisecond. With "leave", the client hangs up as soon as it has sent the request. "by batch" after it names another
// strategy than the one that is tested, and "at 2" the replica, 1 if there is no number. The numbers of a cancellation
// are totals.
package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb says what a request asks for.
type Verb string

// The verbs.
const (
	Sell    Verb = "sell"
	Order   Verb = "order"
	Hold    Verb = "hold"
	Confirm Verb = "confirm"
	Release Verb = "release"
	Find    Verb = "find"
	Cancel  Verb = "cancel"
	Look    Verb = "look"
	Set     Verb = "set"
	Restock Verb = "restock"
	Later   Verb = "later"
	Prune   Verb = "prune"
)

// Line asks for units of an item.
type Line struct {
	Item  byte // a letter; 0 in a cancellation that names none
	Count int64
}

// Request is one line of a script.
type Request struct {
	Verb    Verb
	Lines   []Line
	Key     string
	Name    string        // of a reservation
	Time    time.Duration // that passes, or for which units are held; 0: HoldTime
	Manner  string        // one of the manners, or nothing
	By      string        // the strategy; empty: the one that is tested
	Replica int           // from 0
}

// Manners of requests.
const (
	Try   = "try"
	Work  = "work"
	Leave = "leave"
)

var manners = []string{Try, Work, Leave}

// holdTime is how long a hold asks for its units.
func (q Request) holdTime() time.Duration { return cmp.Or(q.Time, HoldTime) }

// Repeatable reports whether the request can be sent again if its outcome is unknown, without a change.
func (q Request) Repeatable() bool { return q.Verb == Look || q.Verb == Find }

// Script is a sequence of requests, one after another.
type Script []Request

// Parse reads a script: a request in each line. What follows a | is a comment.
func Parse(text string) (s Script, err error) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "|")
		if strings.TrimSpace(line) == "" {
			continue
		}
		q, err := parseRequest(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		s = append(s, q)
	}
	return s, nil
}

// String writes a request in each line.
func (s Script) String() string {
	var text strings.Builder
	for _, q := range s {
		fmt.Fprintln(&text, q)
	}
	return text.String()
}

// arguments are those of each verb: l is lines, k a key, n the name of a reservation, t a time; capital letters are
// optional.
var arguments = map[Verb]string{
	Sell: "lK", Order: "lK", Hold: "lnK", Confirm: "n", Release: "n", Find: "n", Cancel: "kL", Look: "k",
	Set: "l", Restock: "l", Later: "t", Prune: "",
}

func parseRequest(words []string) (q Request, err error) {
	if slices.Contains(manners, words[0]) {
		q.Manner, words = words[0], words[1:]
	}
	for n := len(words); n >= 3 && slices.Contains([]string{"at", "by", "for"}, words[n-2]); n = len(words) {
		if err := q.setOption(words[n-2], words[n-1]); err != nil {
			return q, err
		}
		words = words[:n-2]
	}
	if len(words) == 0 {
		return q, fmt.Errorf("there is no verb")
	}
	q.Verb = Verb(words[0])
	expected, known := arguments[q.Verb]
	if !known {
		return q, fmt.Errorf("%q is no verb", words[0])
	}
	words = words[1:]
	for _, kind := range expected {
		if len(words) == 0 && kind < 'a' {
			return q, nil
		}
		if len(words) == 0 {
			return q, fmt.Errorf("%s needs more words", q.Verb)
		}
		word := words[0]
		words = words[1:]
		switch kind | 0x20 {
		case 'l':
			q.Lines, err = parseLines(word)
		case 'k':
			q.Key = word
		case 'n':
			q.Name = word
		case 't':
			q.Time, err = time.ParseDuration(word)
		}
		if err != nil {
			return q, err
		}
	}
	if len(words) > 0 {
		return q, fmt.Errorf("%q is too much", words)
	}
	return q, nil
}

// setOption reads two words that follow the arguments.
func (q *Request) setOption(name, value string) (err error) {
	switch name {
	case "at":
		if q.Replica, err = strconv.Atoi(value); err != nil || q.Replica < 1 {
			return fmt.Errorf("%q is no replica", value)
		}
		q.Replica--
	case "by":
		q.By = value
	default:
		q.Time, err = time.ParseDuration(value)
	}
	return err
}

func parseLines(word string) (lines []Line, err error) {
	for part := range strings.SplitSeq(word, ",") {
		var line Line
		if part == "" {
			return nil, fmt.Errorf("%q has a line without units", word)
		}
		if last := part[len(part)-1:]; last >= "a" {
			line.Item, part = last[0], strings.TrimSuffix(part, last)
		}
		if line.Count, err = strconv.ParseInt(part, 10, 64); err != nil {
			return nil, fmt.Errorf("%q is no number of units", part)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// String writes the request as Parse reads it.
func (q Request) String() string {
	words := []string{q.Manner, string(q.Verb)}
	for _, kind := range arguments[q.Verb] {
		switch kind | 0x20 {
		case 'l':
			words = append(words, linesText(q.Lines))
		case 'k':
			words = append(words, q.Key)
		case 'n':
			words = append(words, q.Name)
		case 't':
			words = append(words, timeText(q.Time))
		}
	}
	if q.Verb == Hold && q.Time != 0 {
		words = append(words, "for", timeText(q.Time))
	}
	if q.By != "" {
		words = append(words, "by", q.By)
	}
	if q.Replica > 0 {
		words = append(words, "at", strconv.Itoa(q.Replica+1))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// timeText leaves out units of which there are none.
func timeText(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = strings.TrimSuffix(text, none[1:])
		}
	}
	return text
}

func linesText(lines []Line) string {
	words := make([]string, len(lines))
	for i, l := range lines {
		words[i] = strconv.FormatInt(l.Count, 10) + strings.TrimPrefix(string(rune(l.Item)), "\x00")
	}
	return strings.Join(words, ",")
}
