package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Types of columns and parameters that are not sent as strings.
const (
	typeDecimal    = 0x00
	typeTiny       = 0x01
	typeShort      = 0x02
	typeLong       = 0x03
	typeFloat      = 0x04
	typeDouble     = 0x05
	typeNull       = 0x06
	typeTimestamp  = 0x07
	typeLongLong   = 0x08
	typeInt24      = 0x09
	typeDate       = 0x0a
	typeTime       = 0x0b
	typeDateTime   = 0x0c
	typeYear       = 0x0d
	typeNewDecimal = 0xf6
)

// column is the type of a column or of a parameter.
type column struct {
	kind     byte
	unsigned bool
}

// bytesOf are the lengths of integers in the binary protocol, by type.
var bytesOf = map[byte]int{typeTiny: 1, typeShort: 2, typeYear: 2, typeLong: 4, typeInt24: 4, typeLongLong: 8}

// numeric reports whether a value is written without quotes.
func (c column) numeric() bool {
	return bytesOf[c.kind] > 0 ||
		slices.Contains([]byte{typeDecimal, typeNewDecimal, typeFloat, typeDouble}, c.kind)
}

// columnOf reads the definition of a column.
func columnOf(body []byte) column {
	c := cursor{b: body}
	for range 6 { // catalog, schema, two names of the table, two of the column
		c.text()
	}
	c.take(7) // the length of what follows, the character set, and the column's length
	kind, flags := c.integer(1), c.integer(2)
	return column{byte(kind), flags&0x20 != 0}
}

// cursor reads what is left of a packet. If that is too short, it is bad from then on, and reads zeroes.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.bad = nil, true
		return make([]byte, max(0, min(n, maxPacket/8)))
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

// integer reads an integer of n bytes, at most 8.
func (c *cursor) integer(n int) uint64 {
	var whole [8]byte
	copy(whole[:], c.take(n))
	return binary.LittleEndian.Uint64(whole[:])
}

// length reads an integer of one to nine bytes.
func (c *cursor) length() uint64 {
	switch first := c.integer(1); first {
	case 0xfc:
		return c.integer(2)
	case 0xfd:
		return c.integer(3)
	case 0xfe:
		return c.integer(8)
	default:
		return first
	}
}

// text reads a string after its length.
func (c *cursor) text() []byte {
	n := c.length()
	if n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	return c.take(int(n))
}

// value reads a value of the binary protocol, and returns it as a literal of SQL.
func (c *cursor) value(t column) string {
	switch t.kind {
	case typeTiny, typeShort, typeYear, typeLong, typeInt24, typeLongLong:
		return c.number(bytesOf[t.kind], t.unsigned)
	case typeFloat:
		value := math.Float32frombits(uint32(c.integer(4)))
		return float(float64(value), 32)
	case typeDouble:
		return float(math.Float64frombits(c.integer(8)), 64)
	case typeNull:
		return "NULL"
	case typeDate, typeDateTime, typeTimestamp, typeTime:
		c.take(int(c.integer(1)))
		return "'(time)'" // it differs from run to run
	case typeDecimal, typeNewDecimal:
		return string(c.text())
	default:
		return quoteSQL(c.text())
	}
}

// float writes a number. Clients in JavaScript send all of theirs as DOUBLE, also ids.
func float(value float64, bits int) string {
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		return strconv.FormatFloat(value, 'f', 0, bits)
	}
	return strconv.FormatFloat(value, 'g', -1, bits)
}

func (c *cursor) number(bytes int, unsigned bool) string {
	value := c.integer(bytes)
	if unsigned {
		return strconv.FormatUint(value, 10)
	}
	shift := 64 - 8*bytes
	return strconv.FormatInt(int64(value<<shift)>>shift, 10)
}

// legible reports whether a string is text.
func legible(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	})
}

// quoteSQL returns a literal of SQL: hexadecimal if it is not text.
func quoteSQL(value []byte) string {
	if !legible(string(value)) {
		return "0x" + hex.EncodeToString(value)
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(string(value)) + "'"
}
