package script

import (
	"fmt"
	"math/big"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// value is a value of Starlark on its way from one process to the other.
type value struct {
	Kind  kind
	Text  string // of a text or a number
	Float float64
	Items []value // of a dict or a struct: names and values in turn
}

type kind byte

const (
	isNone kind = iota
	isFalse
	isTrue
	isInt
	isFloat
	isText
	isTuple
	isList
	isDict
	isStruct
)

// mostSent is the most that a call sends or returns, in bytes.
const mostSent = mostBytes

// encode makes a value ready to be sent.
func encode(v starlark.Value) (value, error) {
	left := mostSent
	return encodeWithin(&left, v)
}

// encodeWithin is encode for a value that may be one of several. left is how many bytes may still be sent.
func encodeWithin(left *int, v starlark.Value) (e value, err error) {
	var items []starlark.Value
	switch v := v.(type) {
	case starlark.NoneType:
	case starlark.Bool:
		if e.Kind = isFalse; v {
			e.Kind = isTrue
		}
	case starlark.Int:
		if e.Kind = isInt; v.BigInt().BitLen() > mostSent {
			return e, tooLarge()
		}
		e.Text = v.String()
	case starlark.Float:
		e.Kind, e.Float = isFloat, float64(v)
	case starlark.String:
		e.Kind, e.Text = isText, string(v)
	case starlark.Tuple:
		e.Kind, items = isTuple, v
	case *starlark.List:
		e.Kind = isList
		for i := range min(v.Len(), mostSent) {
			items = append(items, v.Index(i))
		}
	case *starlark.Dict:
		e.Kind = isDict
		for name, item := range v.Entries() {
			items = append(items, name, item)
		}
	case *starlarkstruct.Struct:
		e.Kind = isStruct
		for _, name := range v.AttrNames() {
			item, _ := v.Attr(name) // it has this one
			items = append(items, starlark.String(name), item)
		}
	default:
		return e, fmt.Errorf("a %s cannot be sent: a text or a number can", v.Type())
	}
	if *left -= 1 + len(e.Text); *left < 0 || len(items) > *left {
		return e, tooLarge()
	}
	for _, item := range items {
		part, err := encodeWithin(left, item)
		if err != nil {
			return e, err
		}
		e.Items = append(e.Items, part)
	}
	return e, nil
}

func tooLarge() error { return fmt.Errorf("it sends or returns more than %d bytes", mostSent) }

// decode returns the value that was sent.
func (e value) decode() starlark.Value {
	items := make([]starlark.Value, len(e.Items))
	for i, item := range e.Items {
		items[i] = item.decode()
	}
	switch e.Kind {
	case isFalse, isTrue:
		return starlark.Bool(e.Kind == isTrue)
	case isInt:
		n, _ := new(big.Int).SetString(e.Text, 10) // that of an Int
		return starlark.MakeBigInt(n)
	case isFloat:
		return starlark.Float(e.Float)
	case isText:
		return starlark.String(e.Text)
	case isTuple:
		return starlark.Tuple(items)
	case isList:
		return starlark.NewList(items)
	case isDict:
		all := starlark.NewDict(len(items) / 2)
		for i := 0; i < len(items); i += 2 {
			_ = all.SetKey(items[i], items[i+1]) // it was a key before
		}
		return all
	case isStruct:
		fields := starlark.StringDict{}
		for i := 0; i < len(items); i += 2 {
			name, _ := starlark.AsString(items[i])
			fields[name] = items[i+1]
		}
		return starlarkstruct.FromStringDict(starlarkstruct.Default, fields)
	}
	return starlark.None
}
