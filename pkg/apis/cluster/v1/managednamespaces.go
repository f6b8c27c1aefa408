package v1

import "strings"

// ShortNamespaceMessage truncates the message of a condition of a managed namespace to
// MaxManagedNamespaceMessage bytes.
func ShortNamespaceMessage(message string) string {
	if len(message) <= MaxManagedNamespaceMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxManagedNamespaceMessage], "")
}
