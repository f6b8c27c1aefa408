package join

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
)

// The selector of clusteradm must match the labels that the agent sets.
func TestAccountsSelectorMatchesAgentLabels(t *testing.T) {
	if selector := accountsSelector("hash", "c1"); !strings.HasSuffix(selector, "="+serviceaccount.Identity("hash", "c1")) {
		t.Errorf("accountsSelector(hash, c1) = %q, want suffix %q", selector, "="+serviceaccount.Identity("hash", "c1"))
	}
}
