// Package quantity bounds resource quantities. Parsing or comparing a quantity with a
// large exponent, such as 1e-2147483647, takes minutes and gigabytes.
package quantity

import (
	"fmt"
	"regexp"
)

// notation allows 64 digits and an exponent of two digits, which covers every quantity that
// Kubernetes can represent: from 1n to 2^63.
var notation = regexp.MustCompile(`^[+-]?[0-9.]{0,64}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$`)

var exponent = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?[0-9]+$`)

// HasExponent reports whether a string is a number in scientific notation.
func HasExponent(text string) bool { return exponent.MatchString(text) }

// Check returns an error if a string has too many digits or too large an exponent for a
// quantity. It does not find other errors, which the parser reports.
func Check(text string) error {
	if !notation.MatchString(text) {
		if len(text) > 64 {
			text = text[:64] + "..."
		}
		return fmt.Errorf("%q is not a quantity with at most 64 digits and an exponent of at most two digits", text)
	}
	return nil
}
