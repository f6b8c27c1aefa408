package executor

import (
	"context"

	"k8s.io/apiserver/pkg/audit"
)

const (
	// What the audit log says of a request that was judged.
	decisionAnnotation = "executor.work.open-cluster-management.io/decision"
	reasonAnnotation   = "executor.work.open-cluster-management.io/reason"

	allow  = "allow"
	forbid = "forbid"
)

// verdict is what was decided of a write, and by what. The zero value is that of a
// write about which there is nothing to decide.
type verdict struct{ decision, reason string }

// and is the verdict of two that both do not forbid.
func (v verdict) and(other verdict) verdict {
	switch {
	case v.decision == "":
		return other
	case other.decision == "":
		return v
	}
	return verdict{allow, v.reason + "; " + other.reason}
}

// record writes the verdict into the audit log.
func (v verdict) record(ctx context.Context) {
	if v.decision != "" {
		audit.AddAuditAnnotations(ctx, decisionAnnotation, v.decision, reasonAnnotation, v.reason)
	}
}
