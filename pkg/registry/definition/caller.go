package definition

import (
	"context"

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

// ByServer reports whether the server itself sends a request.
func ByServer(ctx context.Context) bool { return Caller(ctx) == user.APIServerUser }
