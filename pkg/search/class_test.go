package search_test

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func TestClassOfSecrets(t *testing.T) {
	tests := []struct {
		properties string
		hub, want  bool
	}{
		{`{"kind":"Secret","kind_plural":"secrets"}`, false, true},
		{`{"kind":"Secret"}`, false, true},
		{`{"kind":"SECRET","kind_plural":"Secrets"}`, false, true},
		{`{"kind":"secret","kind_plural":"things","apigroup":"example.com"}`, false, true},
		{`{"kind":"Thing","kind_plural":"SECRETS","apigroup":"example.com"}`, false, true},
		{`{"kind":"SealedSecret","kind_plural":"sealedsecrets","apigroup":"bitnami.com"}`, false, false},
		{`{"kind":"Secret","kind_plural":"secrets"}`, true, true},
		// In other groups, the RBAC of the hub decides.
		{`{"kind":"Secret","kind_plural":"secrets","apigroup":"example.com"}`, true, false},
	}
	for _, test := range tests {
		properties, err := query.DecodeProperties([]byte(test.properties))
		if err != nil {
			t.Fatal(err)
		}
		if got := search.ClassOf("c1", test.hub, properties).Secret(); got != test.want {
			t.Errorf("ClassOf(hub %v, %s).Secret() = %v, want %v", test.hub, test.properties, got, test.want)
		}
	}
}
