package options

import "fmt"

// problems are the errors of flags.
type problems []error

// addIf adds an error if a flag is wrong.
func (p *problems) addIf(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}
