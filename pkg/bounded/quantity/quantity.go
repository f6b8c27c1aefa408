// Package quantity bounds resource quantities. To parse or to compare a quantity
// with a large exponent takes minutes and gigabytes: 1e-2147483647 is twelve bytes.
package quantity

import (
	"fmt"
	"regexp"
)

// notation has at most 64 digits and an exponent of two, which covers every quantity
// that Kubernetes can represent: from 1n to 2^63.
var notation = regexp.MustCompile(`^[+-]?[0-9.]{0,64}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$`)

var exponent = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?[0-9]+$`)

// HasExponent reports whether a text is a number in scientific notation.
func HasExponent(text string) bool { return exponent.MatchString(text) }

// Check returns an error if a text is too long for a quantity or has too large an
// exponent. It does not report other mistakes, which the parser finds.
func Check(text string) error {
	if !notation.MatchString(text) {
		if len(text) > 64 {
			text = text[:64] + "..."
		}
		return fmt.Errorf("%q is not a quantity of at most 64 digits and an exponent of at most two", text)
	}
	return nil
}
