package v1

import "unicode/utf8"

// ShortNamespaceMessage returns the part of a condition's message that a managed namespace may have.
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
