package executor

import (
	"context"

	"k8s.io/apiserver/pkg/audit"
)

const (
	// The audit annotations of a request with a verdict.
	decisionAnnotation = "executor.work.open-cluster-management.io/decision"
	reasonAnnotation   = "executor.work.open-cluster-management.io/reason"

	allow  = "allow"
	forbid = "forbid"
)

// verdict is the decision on a write and its reason. The zero value is the verdict on a
// write that requires no decision.
type verdict struct{ decision, reason string }

// and joins two verdicts that do not forbid.
func (v verdict) and(other verdict) verdict {
	switch {
	case v.decision == "":
		return other
	case other.decision == "":
		return v
	}
	return verdict{allow, v.reason + "; " + other.reason}
}

// record adds the verdict to the audit event.
func (v verdict) record(ctx context.Context) {
	if v.decision != "" {
		audit.AddAuditAnnotations(ctx, decisionAnnotation, v.decision, reasonAnnotation, v.reason)
	}
}
