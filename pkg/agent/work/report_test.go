package work

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReasonOf(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(secrets, "a", nil), "Forbidden"},
		{fmt.Errorf("applying: %w", apierrors.NewConflict(secrets, "a", errors.New("changed"))), "Conflict"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Reason: "invented-by-a-webhook-1"}}, "Other"},
		{errors.New("any"), "Other"},
	} {
		if got := reasonOf(test.err); got != test.want {
			t.Errorf("reasonOf(%v) = %s, want %s", test.err, got, test.want)
		}
	}
}
