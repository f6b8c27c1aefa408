package hostile

import "slices"

// Classes returns the table of generators.
func Classes() []Class {
	return slices.Concat(
		celClasses(), jqClasses(), jsonPathClasses(), selectorClasses(), searchClasses(), graphQLClasses(),
		reportClasses(), manifestClasses(), permissionClasses(), otherClasses(),
		believedClasses(), watchClasses(),
	)
}
