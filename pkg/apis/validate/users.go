package validate

import (
	"fmt"
	"slices"
	"strings"
)

// FlagUsers returns an error for each value of a flag that is probably a list of users.
func FlagUsers(flag string, users []string) []error {
	var errs []error
	for _, user := range users {
		if LooksLikeList(user) {
			errs = append(errs, fmt.Errorf("--%s %q: commas do not separate users; set the flag once for each user, without quotes", flag, user))
		}
	}
	return errs
}

// LooksLikeList reports whether the value of a flag for one user or group is probably a list. Builds before v0.1.0 split such
// values at commas, unless they were quoted. A distinguished name is one name: all of its parts contain an equals sign.
func LooksLikeList(name string) bool {
	plain := strings.ReplaceAll(name, `\,`, "")
	return strings.HasPrefix(name, `"`) || strings.Contains(plain, ",") &&
		slices.ContainsFunc(strings.Split(plain, ","), func(part string) bool { return !strings.Contains(part, "=") })
}
