package graphql

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestPermissionIsCheckedEveryMinute checks the default interval of the checks of an open connection.
func TestPermissionIsCheckedEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checked []time.Time
		s := &socket{handler: &handler{limits: Limits{}.withDefaults()}, access: &access{
			attributes: authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}},
			authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				checked = append(checked, time.Now())
				return authorizer.DecisionAllow, "", nil
			}),
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s.keepAllowed(ctx)
		for i := 1; i < len(checked); i++ {
			if after := checked[i].Sub(checked[i-1]); after > 75*time.Second {
				t.Errorf("the permission was checked again after %s, want about a minute", after)
			}
		}
		if len(checked) < 50 {
			t.Errorf("checks in an hour = %d, want 50 at least", len(checked))
		}
	})
}
