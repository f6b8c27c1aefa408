package work

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// waitsFor returns what has to come into being before a manifest that failed
// can be applied: its namespace, or some CRD. Nil if it is neither.
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

// wake ends the wait for the next try if what a work waits for has changed.
func (c *Controller) wake(name string, st *workState) {
	for ref, before := range st.waits {
		if seen, known := c.watches.seen(ref); known && seen != before {
			st.notBefore = c.now()
			c.backoff.Forget(name)
			return
		}
	}
}

// rest remembers what the failed manifests of a pass wait for. The watches
// must already include it.
func (c *Controller) rest(name string, st *workState, waits map[objectRef]version) {
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
			// It came while the pass was running, before it was watched.
			c.queue.Add(name)
		}
	}
}
