package wire

import (
	"strings"
	"unicode/utf8"
)

// tokenKind is what a token of SQL is.
type tokenKind byte

const (
	name        tokenKind = iota // a keyword, or a name without quotes or in backquotes
	variable                     // @name, @@name
	literal                      // a string
	number                       // a number
	placeholder                  // ?
	sign                         // anything else, one character
)

// token is a part of a statement. Comments are none.
type token struct {
	kind   tokenKind
	text   string // without quotes
	quoted bool   // it is no keyword
	at     int    // its first byte
	end    int    // after its last byte
}

// word returns a keyword in upper case, and an empty string for anything else.
func (t token) word() string {
	if t.kind != name || t.quoted {
		return ""
	}
	return strings.ToUpper(t.text)
}

// is reports whether the token is this keyword or sign.
func (t token) is(text string) bool {
	switch t.kind {
	case sign:
		return t.text == text
	case name:
		return !t.quoted && strings.EqualFold(t.text, text)
	}
	return false
}

// words reports whether tokens begin with these keywords.
func words(tokens []token, keywords ...string) bool {
	if len(tokens) < len(keywords) {
		return false
	}
	for i, keyword := range keywords {
		if !tokens[i].is(keyword) {
			return false
		}
	}
	return true
}

// indexWords returns where these keywords follow each other, or -1.
func indexWords(tokens []token, keywords ...string) int {
	for i := range tokens {
		if words(tokens[i:], keywords...) {
			return i
		}
	}
	return -1
}

func containsWords(tokens []token, keywords ...string) bool {
	return indexWords(tokens, keywords...) >= 0
}

// tokenize cuts statements into tokens, in the default SQL mode.
func tokenize(text string) (tokens []token) {
	for i := 0; i < len(text); {
		if end := comment(text, i); end > i {
			i = end
			continue
		}
		t := token{kind: sign, at: i, end: i + 1}
		switch c := text[i]; {
		case isSpace(c):
			i++
			continue
		case c == '\'' || c == '"' || c == '`':
			t.text, t.end = unquote(text, i)
			t.kind, t.quoted = literal, true
			if c == '`' {
				t.kind = name
			}
		case c == '@':
			for t.kind = variable; t.end < len(text) && (isName(text[t.end]) || text[t.end] == '@' || text[t.end] == '.'); {
				t.end++
			}
			t.text = text[i:t.end]
		case c >= '0' && c <= '9':
			t.kind, t.end = number, numberEnd(text, i)
			t.text = text[i:t.end]
		case isName(c):
			for t.kind = name; t.end < len(text) && isName(text[t.end]); {
				t.end++
			}
			t.text = text[i:t.end]
		case c == '?':
			t.kind, t.text = placeholder, "?"
		default:
			t.text = text[i:t.end]
		}
		tokens = append(tokens, t)
		i = t.end
	}
	return tokens
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isName(c byte) bool {
	return c == '_' || c == '$' || c >= utf8.RuneSelf || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// numberEnd returns the end of the number at i: also of 0x1f and 1.5e-3.
func numberEnd(text string, i int) int {
	end := i + 1
	for end < len(text) && (isName(text[end]) || text[end] == '.' ||
		(text[end] == '-' || text[end] == '+') && text[end-1]|0x20 == 'e' && !strings.HasPrefix(text[i:], "0x")) {
		end++
	}
	return end
}

// comment returns the end of the comment that begins at i, or i if there is none. The text of /*! … */ is no comment.
func comment(text string, i int) int {
	rest := text[i:]
	switch {
	case rest[0] == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || isSpace(rest[2])):
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			return i + end + 1
		}
		return len(text)
	case strings.HasPrefix(rest, "/*!"), strings.HasPrefix(rest, "/*M!"):
		end := i + strings.IndexByte(rest, '!') + 1
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		return end
	case strings.HasPrefix(rest, "*/"):
		return i + 2
	case strings.HasPrefix(rest, "/*"):
		if end := strings.Index(rest[2:], "*/"); end >= 0 {
			return i + 2 + end + 2
		}
		return len(text)
	}
	return i
}

// unquote returns what is between the quote at i and the next one, and the end after that.
func unquote(text string, i int) (value string, end int) {
	quote := text[i]
	var b strings.Builder
	for end = i + 1; end < len(text); end++ {
		switch c := text[end]; {
		case c == '\\' && quote != '`' && end+1 < len(text):
			end++
			if at := strings.IndexByte("0nrtbZ", text[end]); at >= 0 {
				b.WriteByte("\x00\n\r\t\b\x1a"[at])
			} else {
				b.WriteByte(text[end])
			}
		case c == quote && end+1 < len(text) && text[end+1] == quote:
			end++
			b.WriteByte(c)
		case c == quote:
			return b.String(), end + 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), end
}

// replaceTokens writes a statement anew: replace returns what stands for a token, and whether it is to be replaced.
func replaceTokens(text string, replace func(token) (string, bool)) string {
	var b strings.Builder
	done := 0
	for _, t := range tokenize(text) {
		if by, ok := replace(t); ok {
			b.WriteString(text[done:t.at])
			b.WriteString(by)
			done = t.end
		}
	}
	b.WriteString(text[done:])
	return b.String()
}

// interpolate puts arguments into a statement in the place of its question marks.
func interpolate(text string, args []string) string {
	return replaceTokens(text, func(t token) (string, bool) {
		if t.kind != placeholder || len(args) == 0 {
			return "", false
		}
		arg := args[0]
		args = args[1:]
		return arg, true
	})
}

// shapeSQL returns a statement with question marks for its literals, so that it looks the same with other arguments.
func shapeSQL(text string) string {
	shape := replaceTokens(text, func(t token) (string, bool) { return "?", t.kind == literal || t.kind == number })
	return strings.Join(strings.Fields(shape), " ")
}
