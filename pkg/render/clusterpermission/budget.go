package clusterpermission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
)

// Steps bound the CPU time of parts that do not increase the size of the ManifestWork, for
// example selectors without matches. maxSteps take less than a second. Common specs take
// much less.
const (
	maxSteps = 100_000_000
	// valueSteps and requirementSteps are the cost of matching a namespace with a selector.
	valueSteps       = 1
	requirementSteps = 10
	// placementSteps is the cost of a role or binding in one namespace, including memory.
	placementSteps = 200
	// itemSteps is the cost of merging a rule or a subject.
	itemSteps = 20
)

// budget bounds the cost of a rendering.
type budget struct {
	// limitBytes bounds the size of the manifests; 0 means that nothing is bounded.
	limitBytes int64
	// bytes is a lower bound of the size of the manifests.
	bytes int64
	steps int64
	// manifests is a lower bound of the number of manifests.
	manifests int
}

// exceeded reports whether the budget is exceeded. The rendering then fails.
func (b *budget) exceeded() bool {
	return b.limitBytes > 0 && (b.bytes > b.limitBytes || b.steps > maxSteps || b.manifests > limits.MaxManifests)
}

// err returns the error of an exceeded budget.
func (b *budget) err() *field.Error {
	err := field.TooLong(specPath, "", int(b.limitBytes))
	switch {
	case b.manifests > limits.MaxManifests:
		err.Detail = fmt.Sprintf("renders to more than %d manifests; use several ClusterPermissions", limits.MaxManifests)
	case b.bytes > b.limitBytes:
		err.Detail = fmt.Sprintf("renders to more than %d bytes of manifests; use several ClusterPermissions", b.limitBytes)
	default:
		err.Detail = "takes too long to render: the selectors are compared with, or match, too many namespaces; use fewer selectors or several ClusterPermissions"
	}
	return err
}
