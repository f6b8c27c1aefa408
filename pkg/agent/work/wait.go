package work

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
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

// passing reports whether an error may end without a change of the manifest and without another
// manifest.
func passing(err error) bool {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, apply.ErrTerminating), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return true
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return false
	case !errors.As(err, &status):
		return isConnectionError(err)
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusConflict || code == http.StatusNotFound
}

// definition is the part of a CustomResourceDefinition that names its kind.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
}

// definedKinds returns the kinds of the CustomResourceDefinitions that the pass has applied.
func (p *pass) definedKinds() sets.Set[schema.GroupVersionKind] {
	kinds := sets.New[schema.GroupVersionKind]()
	for _, it := range p.items {
		var crd definition
		if it.Object == nil || it.GVR.GroupResource() != crdResource.GroupResource() || p.results[it.Ordinal].Err != nil ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(it.Object.Object, &crd) != nil {
			continue
		}
		for _, version := range crd.Spec.Versions {
			if version.Served {
				kinds.Insert(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind})
			}
		}
	}
	return kinds
}

// early returns the error of an interceptor that is not created yet, because it could refuse an item
// that is about to be applied. An item that the cluster has refused delays no interceptor, because
// it may depend on one. applied is true if the interceptor was applied before.
func (p *pass) early(it *decide.Item, applied bool) error {
	if applied || !it.Intercepts() || it.Config.Strategy.Type == workv1.UpdateStrategyTypeReadOnly {
		return nil
	}
	if p.delay == nil {
		// All other items precede the interceptors.
		p.delay = ptr.To(p.delaying())
	}
	return *p.delay
}

func (p *pass) delaying() error {
	kinds := p.definedKinds()
	for _, it := range p.items {
		err := p.results[it.Ordinal].Err
		if err != nil && !it.Intercepts() && (passing(err) || meta.IsNoMatchError(err) && kinds.Has(it.GVK)) {
			return fmt.Errorf("not created yet, because it could refuse %s, which is not applied", decide.Describe(it.Meta()))
		}
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
