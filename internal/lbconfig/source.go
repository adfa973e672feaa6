package lbconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// nestingLimit is the number of open objects and arrays at which Stargate's parser gives up.
const nestingLimit = 128

// source is the text of a file as tokens that know their position. The standard library's decoder reads them;
// what it lets through and Stargate's parser does not is refused here: text that is not UTF-8, half a surrogate
// pair, a number beyond a 64-bit float, deep nesting.
type source struct {
	data    []byte
	decoder *json.Decoder
	depth   int
}

func newSource(data []byte) *source {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return &source{data: data, decoder: decoder}
}

// node is a JSON value: nil, a bool, a string, a json.Number, an object or an array. A node of the stream's top
// levels may be a json.Delim, an object or array that is yet to be read.
type node struct {
	value  any
	offset int // of its first byte
}

type (
	object []member // duplicates included
	array  []node
	member struct {
		key    string
		offset int // of the key
		value  node
	}
)

// describe names a value in the words of Stargate's parser.
func (n node) describe() string {
	switch v := n.value.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("boolean `%t`", v)
	case string:
		return "string " + strconv.Quote(v)
	case json.Number:
		if isInteger(v) {
			return fmt.Sprintf("integer `%s`", v)
		}
		return fmt.Sprintf("floating point `%s`", v)
	case json.Delim:
		if v == '{' {
			return "map"
		}
		return "sequence"
	case object:
		return "map"
	default:
		return "sequence"
	}
}

// isInteger says whether Stargate's parser keeps a number as an integer.
func isInteger(n json.Number) bool {
	if _, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return true
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return err == nil && i < 0 // a zero with a sign is a floating-point number
}

// next reads one token.
func (s *source) next() (node, error) {
	start := s.offset()
	token, err := s.decoder.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return node{}, s.refuse(JSONSyntax, len(s.data), nil, "unexpected end of the file")
	case err != nil:
		return node{}, s.refuse(JSONSyntax, start, nil, "%v", err)
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '}' || t == ']' {
			s.depth--
			break
		}
		if s.depth++; s.depth == nestingLimit {
			return node{}, s.refuse(JSONSyntax, start, nil, "recursion limit exceeded")
		}
	case string:
		if loneSurrogate(s.data[start:s.decoder.InputOffset()]) {
			return node{}, s.refuse(JSONSyntax, start, nil, "lone surrogate in a string")
		}
	case json.Number:
		if _, err := t.Float64(); err != nil {
			return node{}, s.refuse(JSONSyntax, start, nil, "number out of range")
		}
	}
	return node{value: token, offset: start}, nil
}

// whole reads a value to its end.
func (s *source) whole() (node, error) {
	first, err := s.next()
	if err != nil {
		return node{}, err
	}
	switch first.value {
	case json.Delim('{'):
		members := object{}
		for {
			key, err := s.next()
			if err != nil {
				return node{}, err
			}
			name, ok := key.value.(string)
			if !ok {
				return node{members, first.offset}, nil
			}
			value, err := s.whole()
			if err != nil {
				return node{}, err
			}
			members = append(members, member{name, key.offset, value})
		}
	case json.Delim('['):
		items := array{}
		for s.decoder.More() {
			item, err := s.whole()
			if err != nil {
				return node{}, err
			}
			items = append(items, item)
		}
		_, err := s.next()
		return node{items, first.offset}, err
	default:
		return first, nil
	}
}

// offset of the next token's first byte, or of the end of the file.
func (s *source) offset() int {
	at := int(s.decoder.InputOffset())
	rest := bytes.TrimLeft(s.data[at:], " \t\r\n,:")
	return len(s.data) - len(rest)
}

func (s *source) checkEncoding() error {
	for at := 0; at < len(s.data); {
		r, size := utf8.DecodeRune(s.data[at:])
		if r == utf8.RuneError && size == 1 {
			return s.refuse(JSONSyntax, at, nil, "invalid UTF-8")
		}
		at += size
	}
	return nil
}

func (s *source) checkEnd() error {
	at := s.offset()
	if rest := bytes.TrimLeft(s.data[s.decoder.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return s.refuse(JSONSyntax, at, nil, "trailing characters")
	}
	return nil
}

func (s *source) refuse(kind Kind, offset int, place *Place, format string, args ...any) *Error {
	line, column := s.position(offset)
	return &Error{Kind: kind, Stage: Parse, Place: place, Line: line, Column: column, message: fmt.Sprintf(format, args...)}
}

func (s *source) position(offset int) (line, column int) {
	before := s.data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n')
}

// loneSurrogate says whether a string literal escapes one half of a surrogate pair without the other.
func loneSurrogate(literal []byte) bool {
	rest := string(literal)
	for {
		escape := strings.IndexByte(rest, '\\')
		if escape < 0 {
			return false
		}
		rest = rest[escape:]
		unit, ok := escapedUnit(rest)
		if !ok {
			rest = rest[len(`\n`):]
			continue
		}
		rest = rest[len(`\uXXXX`):]
		if !utf16.IsSurrogate(unit) {
			continue
		}
		second, ok := escapedUnit(rest)
		if !ok || utf16.DecodeRune(unit, second) == utf8.RuneError {
			return true
		}
		rest = rest[len(`\uXXXX`):]
	}
}

// escapedUnit reads the UTF-16 unit that s begins with, \uXXXX, if it does.
func escapedUnit(s string) (rune, bool) {
	if len(s) < len(`\uXXXX`) || s[:2] != `\u` {
		return 0, false
	}
	unit, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(unit), err == nil
}
