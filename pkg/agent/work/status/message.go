package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Truncate returns a text, shortened to the maximum length of a condition message. The end stays,
// because it often contains the reason.
func Truncate(text string) string { return shorten(text, maxMessage) }

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := limit / 3
	return strings.ToValidUTF8(text[:head], "") + "…" + strings.ToValidUTF8(text[len(text)-(limit-head):], "")
}

// Message returns the text of an error within the maximum length of a condition message. It shortens
// the values in the causes of an API error, not the reasons.
func Message(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if len(text) <= maxMessage || !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return Truncate(text)
	}
	causes := status.Status().Details.Causes
	start, _, _ := strings.Cut(text, cmp.Or(causes[0].Field, causes[0].Message))
	result := shorten(strings.TrimRight(start, "[- \n"), maxMessage/4)
	for i, cause := range causes {
		reason := shorten(withoutValue(cause.Message), maxMessage/4)
		if cause.Field != "" {
			reason = shorten(cause.Field, maxMessage/8) + ": " + reason
		}
		if len(result)+len(reason) > maxMessage/8*7 {
			return fmt.Sprintf("%s; and %d more", result, len(causes)-i)
		}
		if i > 0 {
			result += ";"
		}
		result += " " + reason
	}
	return result
}

// maxValue bounds a value in a reason, in bytes.
const maxValue = 64

// withoutValue shortens the value in the message of a cause, such as
// `Invalid value: {"labels":{"app":"web"}}: field is immutable`.
func withoutValue(reason string) string {
	kind, rest, found := strings.Cut(reason, ": ")
	if !found {
		return reason
	}
	decoder := json.NewDecoder(strings.NewReader(rest))
	var value json.RawMessage
	if decoder.Decode(&value) != nil {
		return reason
	}
	end := int(decoder.InputOffset())
	return kind + ": " + shorten(rest[:end], maxValue) + rest[end:]
}
