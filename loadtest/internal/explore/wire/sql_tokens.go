package wire

import (
	"regexp"
	"strings"
)

// tokenKind is what a token of SQL is: the number of its group in lexemes.
type tokenKind int

const (
	quotedName  tokenKind = iota + 1 // a name in quotes: backquotes in MySQL, double quotes in PostgreSQL
	literal                          // a string
	variable                         // @name, @@name
	number                           // a number
	name                             // a keyword, or a name without quotes
	placeholder                      // ?, or $1
	sign                             // anything else, one character
)

// lexemes matches what statements consist of, in the default SQL mode. What is in no group is no token: blanks,
// comments, and the marks around the text of /*! … */, which is no comment.
var lexemes = regexp.MustCompile(`(?s)\s+|#[^\n]*|--(?:[ \t\r\v\f][^\n]*)?(?:\n|$)|/\*M?!\d*|/\*.*?(?:\*/|$)|\*/` +
	"|(`(?:[^`]|``)*`?)" + `|('(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?)|(@[\w$@.\x{80}-\x{10FFFF}]*)` +
	`|(\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]\d+|\d[\w$\x{80}-\x{10FFFF}]*)|([\w$\x{80}-\x{10FFFF}]+)|(\?)|(.)`)

// postgresLexemes does so for PostgreSQL: there are literals with dollar signs, and no variables, whose group matches
// nothing.
var postgresLexemes = regexp.MustCompile(`(?s)\s+|--[^\n]*|/\*.*?(?:\*/|$)` +
	`|("(?:[^"]|"")*"?)|([eE]'(?:[^'\\]|\\.|'')*'?|'(?:[^']|'')*'?|\$[A-Za-z_]*\$.*?(?:\$[A-Za-z_]*\$|$))` +
	`|([^\x00-\x{10FFFF}])|(\d+\.?\d*(?:[eE][-+]?\d+)?)|([\w\x80-\x{10FFFF}][\w$\x80-\x{10FFFF}]*)|(\$\d+)|(.)`)

// numeral matches numbers. Names may begin with a digit, too.
var numeral = regexp.MustCompile(`^(?:[\d.]+(?:[eE][-+]?\d+)?|0x[\da-fA-F]+|0b[01]+)$`)

// escaped has what a backslash and a character stand for in a literal, if it is not the character.
var escaped = map[byte]string{
	'0': "\x00", 'n': "\n", 'r': "\r", 't': "\t", 'b': "\b", 'Z': "\x1a", '%': `\%`, '_': `\_`,
}

// unquote returns what a literal or a quoted name says. Only its own quotation mark is doubled in it, and only literals
// have backslashes.
func unquote(text string) string {
	quote := text[0]
	if text = strings.TrimSuffix(text[1:], text[:1]); !strings.ContainsRune("'\"`", rune(quote)) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch more := i+1 < len(text); {
		case more && text[i] == quote && text[i+1] == quote:
			i++
			b.WriteByte(quote)
		case more && text[i] == '\\' && (quote == '\'' || quote == '"'):
			i++
			if by, ok := escaped[text[i]]; ok {
				b.WriteString(by)
			} else {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// token is a part of a statement.
type token struct {
	kind    tokenKind
	text    string // without quotes, unless a literal of PostgreSQL begins with E or $
	at, end int    // its first byte, and the one after its last
}

// is reports whether the token is this keyword or sign.
func (t token) is(text string) bool {
	return (t.kind == name || t.kind == sign) && strings.EqualFold(t.text, text)
}

// tokenize cuts statements into tokens.
func tokenize(text string) []token { return tokensOf(text, lexemes) }

func tokensOf(text string, lexemes *regexp.Regexp) (tokens []token) {
	for _, m := range lexemes.FindAllStringSubmatchIndex(text, -1) {
		for kind := quotedName; kind <= sign; kind++ {
			at, end := m[2*kind], m[2*kind+1]
			if at < 0 {
				continue
			}
			t := token{kind, text[at:end], at, end}
			if kind == number && !numeral.MatchString(t.text) {
				t.kind = name
			}
			if kind == quotedName || kind == literal {
				t.text = unquote(t.text)
			}
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// outline returns the keywords, names and signs of a statement in upper case, with a blank before and after each, and
// question marks for all else.
func outline(tokens []token) string {
	var b strings.Builder
	b.WriteByte(' ')
	for _, t := range tokens {
		if t.kind == name || t.kind == sign {
			b.WriteString(strings.ToUpper(t.text))
		} else {
			b.WriteByte('?')
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// replaceTokens writes a statement anew: replace returns what stands for a token, and whether it is to be replaced.
func replaceTokens(text string, tokens []token, replace func(token) (string, bool)) string {
	var b strings.Builder
	done := 0
	for _, t := range tokens {
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
	return replaceTokens(text, tokenize(text), func(t token) (string, bool) {
		if t.kind != placeholder || len(args) == 0 {
			return "", false
		}
		arg := args[0]
		args = args[1:]
		return arg, true
	})
}
