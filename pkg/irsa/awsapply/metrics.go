package awsapply

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
)

// Results of calls.
const (
	resultSuccess   = "success"
	resultExists    = "already_exists"
	resultNotFound  = "not_found"
	resultThrottled = "throttled"
	resultDenied    = "denied"
	resultError     = "error"
)

var calls = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem:      "hub_apiserver",
	Name:           "aws_calls_total",
	Help:           "Calls to AWS by service, operation and result: success, already_exists, not_found, throttled, denied or error. Attempts of one call count once.",
	StabilityLevel: metrics.ALPHA,
}, []string{"service", "operation", "result"})

func init() {
	legacyregistry.MustRegister(calls)
}

// result maps errors of AWS to a few values, to limit the number of time series.
func result(err error) string {
	if err == nil {
		return resultSuccess
	}
	switch awserror.Code(err) {
	case "EntityAlreadyExists", "ResourceInUseException":
		return resultExists
	case "NoSuchEntity", "ResourceNotFoundException":
		return resultNotFound
	case "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "RequestThrottled":
		return resultThrottled
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "InvalidClientTokenId", "UnrecognizedClientException",
		"ExpiredToken", "ExpiredTokenException", "SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken":
		return resultDenied
	}
	return resultError
}
