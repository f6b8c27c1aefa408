package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// Wrong returns an error about flags if the condition holds.
func Wrong(condition bool, format string, args ...any) error {
	if !condition {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// OneOf returns an error unless the value of a flag is allowed.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	last := len(allowed) - 1
	return fmt.Errorf("--%s must be %s or %s, not %q", flag, strings.Join(allowed[:last], ", "), allowed[last], value)
}

// CheckName checks a name that is also the name of a namespace, on the hub or on a managed cluster.
func CheckName(flag, name string) error {
	if name == "" {
		return fmt.Errorf("--%s is required", flag)
	}
	if problems := validation.ValidateNamespaceName(name, false); len(problems) > 0 {
		return fmt.Errorf("--%s %q: %s", flag, name, strings.Join(problems, "; "))
	}
	return nil
}

// CheckURL returns an error unless the value of a flag is an https URL, because tokens are sent to it.
func CheckURL(flag, address string) error {
	if parsed, err := url.Parse(address); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("--%s: must be a URL like https://hub.example.com:6443, not %q", flag, address)
	}
	return nil
}
