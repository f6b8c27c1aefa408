package clusterpermission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
)

// What does not make the work larger still takes time: selectors that match
// nothing, parts of the spec that add nothing to an object. All steps together
// take less than a second, and common specs stay far below that.
const (
	maxSteps = 100_000_000
	// valueSteps and requirementSteps are for comparing a namespace with a selector.
	valueSteps       = 1
	requirementSteps = 10
	// placementSteps are for a part of the spec in a namespace. They stand for the
	// memory that it takes, too.
	placementSteps = 200
	// itemSteps are for merging a rule or a subject.
	itemSteps = 20
)

// budget is what a rendering may cost.
type budget struct {
	// limitBytes is how large the manifests may become; 0 means that nothing is bounded.
	limitBytes int64
	// bytes is how large they are at least, as far as they are known.
	bytes int64
	steps int64
	// manifests is how many there are at least.
	manifests int
}

// exceeded tells that there will be no result, so that the rest is not worth the work.
func (b *budget) exceeded() bool {
	return b.limitBytes > 0 && (b.bytes > b.limitBytes || b.steps > maxSteps || b.manifests > limits.MaxManifests)
}

// refusal says what is exceeded.
func (b *budget) refusal() *field.Error {
	err := field.TooLong(specPath, "", int(b.limitBytes))
	switch {
	case b.manifests > limits.MaxManifests:
		err.Detail = fmt.Sprintf("renders to more than %d manifests; use several ClusterPermissions", limits.MaxManifests)
	case b.bytes > b.limitBytes:
		err.Detail = fmt.Sprintf("renders to more than %d bytes of manifests", b.limitBytes)
	default:
		err.Detail = "takes too long to render: too many selectors are compared with, or match, too many namespaces"
	}
	return err
}
