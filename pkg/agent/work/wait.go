package work

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var (
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// waitsFor returns the object without which a manifest could not be applied: its namespace, or
// any CRD. It returns nil for other errors.
func waitsFor(err error) *objectRef {
	if meta.IsNoMatchError(err) {
		return &objectRef{gvr: crdResource, key: anyObject}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonNotFound || status.Status().Details == nil {
		return nil
	}
	if details := status.Status().Details; details.Kind == "namespaces" && details.Group == "" && details.Name != "" {
		return &objectRef{gvr: namespaceResource, key: types.NamespacedName{Name: details.Name}}
	}
	return nil
}

// endWait makes the failed manifests due if an object that they wait for has changed.
func (c *Controller) endWait(key cache.ObjectName, st *workState) {
	for ref, before := range st.waits {
		if seen, known := c.watches.seen(ref); known && seen != before {
			st.notBefore = c.now()
			c.loop.Forget(key)
			return
		}
	}
}

// setWaits stores the objects that the failed manifests of a pass wait for. The objects must
// already be watched.
func (c *Controller) setWaits(key cache.ObjectName, st *workState, waits map[objectRef]version) {
	before := st.waits
	st.waits = waits
	for ref := range waits {
		seen, known := c.watches.seen(ref)
		_, again := before[ref]
		switch {
		case !known:
		case ref.key == anyObject || again:
			waits[ref] = seen
		case seen != version{}:
			// The object was created during the pass, before it was watched.
			c.loop.Add(key)
		}
	}
}
