package cli

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
)

// TestPersist checks that a migration repeats a request that may succeed later, and reports a refused one at once.
func TestPersist(t *testing.T) {
	refused := apierrors.NewConflict(migrationv1alpha1.Resource("imports"), "", errors.New("the hub forwards work.open-cluster-management.io/v1 to an API server"))
	for name, test := range map[string]struct {
		errs  []error
		want  error
		calls int
	}{
		"temporary": {[]error{apierrors.NewServiceUnavailable("starting"), apierrors.NewTooManyRequests("busy", 0), nil}, nil, 3},
		"conflict":  {[]error{apierrors.NewServiceUnavailable("starting"), refused, nil}, refused, 2},
	} {
		calls := 0
		err := Persist(t.Context(), func(context.Context) error {
			calls++
			return test.errs[calls-1]
		})
		if !errors.Is(err, test.want) || calls != test.calls {
			t.Errorf("%s: Persist returned %v after %d requests, want %v after %d", name, err, calls, test.want, test.calls)
		}
	}
}
