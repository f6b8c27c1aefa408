package v1

import "unicode/utf8"

// ShortNamespaceMessage truncates the message of a condition of a managed namespace to
// MaxManagedNamespaceMessage bytes.
func ShortNamespaceMessage(message string) string {
	if len(message) <= MaxManagedNamespaceMessage {
		return message
	}
	end := MaxManagedNamespaceMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}
