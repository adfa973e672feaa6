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

// canonicalDecimal gives every spelling of a number one spelling of the same exact value: 0.10 and 1e-1 become
// 0.1, 2.0 becomes 2, and zero has no sign. It works on the decimal digits: a detour over a binary float would
// change what the author wrote. A number too small for an exponent of 64 bits is 0, as it is to any reader.
func canonicalDecimal(s string) (string, error) {
	if !isNumber(s) {
		return "", fmt.Errorf(`%q is no JSON number; write it like "0.1", "2" or "1e-3"`, s)
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return "", fmt.Errorf("%q is beyond the range of a 64-bit floating-point number; use a smaller one", s)
	}
	sign, s := splitSign(s)
	mantissa, exponent, _ := strings.Cut(strings.ReplaceAll(s, "E", "e"), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", nil
	}
	power := 0
	if exponent != "" {
		var err error
		if power, err = strconv.Atoi(exponent); err != nil {
			return "0", nil
		}
	}
	point := power - len(fraction) + len(digits) // the value is 0.digits times ten to the point
	digits = strings.TrimRight(digits, "0")
	switch {
	case point > largestPlain || point <= smallestPlain:
		rest := ""
		if len(digits) > 1 {
			rest = "." + digits[1:]
		}
		return sign + digits[:1] + rest + "e" + strconv.Itoa(point-1), nil
	case point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits, nil
	case point < len(digits):
		return sign + digits[:point] + "." + digits[point:], nil
	default:
		return sign + digits + strings.Repeat("0", point-len(digits)), nil
	}
}

func splitSign(s string) (sign, rest string) {
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		return "-", rest
	}
	return "", s
}

// isNumber says whether s is a number of JSON's grammar and nothing else.
func isNumber(s string) bool {
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	return s != "" && (s[0] == '-' || isDigit(s[0])) && isDigit(s[len(s)-1]) && json.Valid([]byte(s))
}
