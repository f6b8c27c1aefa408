package join

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestJoinSendsNoTokenToAHubThatIsNotVerified checks that the command ends without a request to a hub whose certificate the
// system does not trust.
func TestJoinSendsNoTokenToAHubThatIsNotVerified(t *testing.T) {
	hub := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request of %s, want none", r.URL) }))
	defer hub.Close()
	address := &Address{hub: "the hub", server: hub.URL, token: "secret"}
	if _, _, err := address.Check(t.Context(), cli.Environment{}, "cluster1"); err == nil || !strings.Contains(err.Error(), "--ca-data") || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("Check() of a hub that is not verified = %v, want an error that contains --ca-data and --ca-file", err)
	}
}
