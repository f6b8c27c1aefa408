package awserror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func TestText(t *testing.T) {
	answer := &smithy.GenericAPIError{Code: "AccessDenied", Message: "User x is not authorized"}
	send := &smithyhttp.RequestSendError{Err: &url.Error{Op: "Post", URL: "https://iam.amazonaws.com/?X-Amz-Security-Token=SECRET", Err: io.EOF}}
	operation := func(service, operation string, err error) error {
		return &smithy.OperationError{ServiceID: service, OperationName: operation, Err: err}
	}
	for want, err := range map[string]error{
		"iam CreateRole for role r: AccessDenied: User x is not authorized": operation("IAM", "CreateRole",
			&smithyhttp.ResponseError{Err: answer, Response: nil}),
		"iam CreateRole for role r: getting credentials by STS AssumeRoleWithWebIdentity: AccessDenied: User x is not authorized": operation("IAM", "CreateRole",
			fmt.Errorf("get identity: get credentials: %w", operation("STS", "AssumeRoleWithWebIdentity", answer))),
		"iam CreateRole for role r: no response from iam.amazonaws.com: EOF":                           operation("IAM", "CreateRole", fmt.Errorf("exceeded maximum number of attempts, 3, %w", send)),
		"iam CreateRole for role r: no response before the deadline":                                   operation("IAM", "CreateRole", &smithy.CanceledError{Err: context.DeadlineExceeded}),
		"iam CreateRole for role r: static credentials are empty":                                      operation("IAM", "CreateRole", errors.New("static credentials are empty")),
		"iam CreateRole for role r: getting credentials by ec2imds GetMetadata: no role":               operation("IAM", "CreateRole", fmt.Errorf("no EC2 IMDS role found, %w", operation("ec2imds", "GetMetadata", errors.New("no role")))),
		"iam CreateRole for role r: SignatureDoesNotMatch: The request signature does not match.":      &smithy.GenericAPIError{Code: "SignatureDoesNotMatch", Message: "The request signature does not match.\n\nThe Canonical String was\nx-amz-security-token:SECRET\n"},
		"iam CreateRole for role r: ValidationError: " + strings.Repeat("é", maxMessageLength/2) + "…": &smithy.GenericAPIError{Code: "ValidationError", Message: strings.Repeat("é", maxMessageLength)},
	} {
		got := New("iam", "CreateRole", "role r", err)
		if got.Error() != want {
			t.Errorf("New() = %q, want %q", got, want)
		}
		if !errors.Is(got, err) {
			t.Errorf("errors.Is(%q, cause) = false, want true", got)
		}
	}
	if New("iam", "CreateRole", "role r", nil) != nil {
		t.Error("New() of a successful call = an error, want nil")
	}
}

func TestCode(t *testing.T) {
	err := fmt.Errorf("more: %w", New("iam", "GetRole", "r", &smithy.GenericAPIError{Code: "NoSuchEntity"}))
	if got := Code(err); got != "NoSuchEntity" {
		t.Errorf("Code() = %q, want NoSuchEntity", got)
	}
	if got := Code(io.EOF); got != "" {
		t.Errorf("Code(io.EOF) = %q, want an empty string", got)
	}
}
