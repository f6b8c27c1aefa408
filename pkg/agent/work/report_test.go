package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUncertain checks after which errors a write may still take effect.
func TestUncertain(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&url.Error{Op: "Put", URL: "https://cluster", Err: context.DeadlineExceeded}, true},
		{fmt.Errorf("applying: %w", apierrors.NewTimeoutError("the request took too long", 0)), true},
		{apierrors.NewServerTimeout(secrets, "update", 1), true},
		{apierrors.NewGenericServerResponse(http.StatusBadGateway, "PUT", secrets, "a", "bad gateway", 0, true), true},
		{apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "PUT", secrets, "a", "gateway timeout", 0, true), true},
		{apierrors.NewForbidden(secrets, "a", nil), false},
		{apierrors.NewConflict(secrets, "a", errors.New("changed")), false},
		{apierrors.NewInternalError(errors.New("broken")), false},
		{apierrors.NewTooManyRequests("busy", 1), false},
		{errors.New("any"), false},
	} {
		if got := uncertain(test.err); got != test.want {
			t.Errorf("uncertain(%v) = %t, want %t", test.err, got, test.want)
		}
	}
}
