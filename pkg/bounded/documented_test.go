package bounded_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// TestDocumentedLimits checks that the limits are those of docs/expressions.md. Tests of the limits use the constants.
func TestDocumentedLimits(t *testing.T) {
	content, err := os.ReadFile("../../docs/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(content)), " ")
	grouped := func(n int) string {
		text := fmt.Sprint(n)
		for at := len(text) - 3; at > 0; at -= 3 {
			text = text[:at] + "," + text[at:]
		}
		return text
	}
	ordinary := bounded.Ordinary
	for _, want := range []string{
		fmt.Sprintf("an object of ordinary size: %s values, %d KiB of text, lists of %d entries. If that exceeds %s steps",
			grouped(ordinary.Values), ordinary.Bytes>>10, ordinary.Width, grouped(bounded.ExpressionSteps)),
		fmt.Sprintf("cost at most %s steps for each pass", grouped(bounded.PassSteps)),
		fmt.Sprintf("| length of an expression | %s bytes |", grouped(bounded.MaxLength)),
		fmt.Sprintf("| different expressions in a ManifestWork | %s |", grouped(bounded.MaxExpressions)),
		fmt.Sprintf("| length of all different expressions in a ManifestWork | %d KiB |", bounded.MaxTotalLength>>10),
		fmt.Sprintf("| `conditionRules` in a `manifestConfig` | %d |", bounded.MaxConditionRules),
		fmt.Sprintf("| JSON paths in the `feedbackRules` of a `manifestConfig` | %d |", bounded.MaxFeedbackPaths),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/expressions.md does not contain %q", want)
		}
	}
}
