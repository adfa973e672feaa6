package render

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The powers of ten between which a number is written without an exponent, as in JSON.stringify.
const (
	smallestPlain = -6
	largestPlain  = 21
)

// appendDecimal appends a number in the one spelling that stands for its exact value: 0.10 and 1e-1 become 0.1,
// 2.0 becomes 2, and zero has no sign. It works on the decimal digits: a detour over a binary float would change
// what the author wrote. A number too small for an exponent of 32 bits is 0, as it is to any reader.
func appendDecimal(b []byte, s string) ([]byte, error) {
	if !isNumber(s) {
		return b, fmt.Errorf(`%q is no JSON number; write it like "0.1", "2" or "1e-3"`, s)
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return b, fmt.Errorf("%q is beyond the range of a 64-bit floating-point number; use a smaller one", s)
	}
	s, negative := strings.CutPrefix(s, "-")
	mantissa, exponent := s, ""
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		mantissa, exponent = s[:e], s[e+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	power := int64(0)
	if exponent != "" {
		var err error
		if power, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			digits = ""
		}
	}
	if digits == "" {
		return append(b, '0'), nil
	}
	point := int(power) - len(fraction) + len(digits) // the value is 0.digits times ten to the point
	digits = strings.TrimRight(digits, "0")
	if negative {
		b = append(b, '-')
	}
	switch {
	case point > largestPlain || point <= smallestPlain:
		b = append(b, digits[0])
		if len(digits) > 1 {
			b = append(append(b, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(b, 'e'), int64(point-1), 10), nil
	case point <= 0:
		return append(appendZeros(append(b, "0."...), -point), digits...), nil
	case point < len(digits):
		return append(append(append(b, digits[:point]...), '.'), digits[point:]...), nil
	default:
		return appendZeros(append(b, digits...), point-len(digits)), nil
	}
}

func appendZeros(b []byte, count int) []byte {
	for range count {
		b = append(b, '0')
	}
	return b
}

// isNumber says whether s is a number of JSON's grammar and nothing else.
func isNumber(s string) bool {
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	return s != "" && (s[0] == '-' || isDigit(s[0])) && isDigit(s[len(s)-1]) && json.Valid([]byte(s))
}
