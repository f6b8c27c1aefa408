package definition

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Caller returns the name of the user who sends a request, or "" if the request has no user.
func Caller(ctx context.Context) string {
	if caller, known := request.UserFrom(ctx); known {
		return caller.GetName()
	}
	return ""
}

// ByServer reports whether the server itself sends a request, through its loopback client.
func ByServer(ctx context.Context) bool {
	caller, known := request.UserFrom(ctx)
	return known && caller.GetName() == user.APIServerUser && slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}
