package fleetreview

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// TestDocumentedLimits checks that the limits are those of docs/limits.md. Tests of the limits use the constants.
func TestDocumentedLimits(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	for _, want := range []string{
		fmt.Sprintf("| clusters or subjects in a response | %d, at most %s |", defaultLimit, thousands(maxLimit)),
		fmt.Sprintf("| bytes of rules and names | about %d MiB |", maxResponse>>20),
		fmt.Sprintf("| chains of a cluster or subject; holdings of a cluster; rules of a holding | %d; %d; %d |", maxChains, maxHoldings, maxRules),
		fmt.Sprintf("| words of each list; bytes of a word | %d; %d |", maxWords, maxWord),
		fmt.Sprintf("| names; ManagedClusterSets; terms of the label selector | %s; %d; %d |", thousands(maxNames), maxSets, maxRequirements),
		fmt.Sprintf("| bytes of its rules, or of its roleRef and subjects | %d KiB |", inventory.MaxAccessBytes>>10),
		fmt.Sprintf("| bytes of all rules, roleRefs and subjects; roles; bindings | %[1]d MiB; %[2]s; %[2]s |", access.MaxBytes>>20, thousands(access.MaxObjects)),
		fmt.Sprintf("| groups; bytes of each name and attribute | %d; %s |", maxGroups, thousands(maxText)),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/limits.md does not contain %q", want)
		}
	}
}
