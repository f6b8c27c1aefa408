package differential_test

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// fate contains the result of the requests for the object of a manifest: the reason of the
// denial by verb, or "" if the request passes.
type fate map[string]string

// cluster sends requests to the managed cluster, as an administrator and as an executor.
type cluster struct {
	admin, executor dynamic.Interface
}

func of(client dynamic.Interface, m *manifest) dynamic.ResourceInterface {
	if m.target.Namespace == "" {
		return client.Resource(m.target.Resource)
	}
	return client.Resource(m.target.Resource).Namespace(m.target.Namespace)
}

var dryRun = []string{metav1.DryRunAll}

// try sends every request that the lifecycle of an object can require, as the executor. The
// state of the cluster, except for RBAC objects, has no effect, because requests are authorized
// first. Afterwards the RBAC objects are restored.
func (c *cluster) try(ctx context.Context, m *manifest) (fate, error) {
	f, tries := fate{}, &attempts{manifest: m}
	as, name := of(c.executor, m), m.target.Name
	strategy := m.target.Strategy
	create := metav1.CreateOptions{DryRun: dryRun, FieldManager: "work-agent"}
	apply := metav1.ApplyOptions{DryRun: dryRun, FieldManager: "work-agent", Force: true}
	if strategy == workv1.UpdateStrategyTypeServerSideApply {
		_, err := as.Apply(ctx, name, m.target.Object.DeepCopy(), apply)
		f["create"] = tries.why("apply of an absent object", err)
	}
	if m.live != nil {
		if err := c.place(ctx, m, m.live); err != nil {
			return nil, err
		}
	}
	_, err := as.Get(ctx, name, metav1.GetOptions{})
	f["get"] = tries.why("get", err)
	if strategy == workv1.UpdateStrategyTypeReadOnly {
		return f, tries.join(c.restore(ctx, m))
	}
	if strategy != workv1.UpdateStrategyTypeServerSideApply {
		_, err = as.Create(ctx, m.target.Object.DeepCopy(), create)
		f["create"] = tries.why("create", err)
	}
	_, err = as.Update(ctx, m.result(), metav1.UpdateOptions{DryRun: dryRun, FieldManager: "work-agent"})
	f["update"] = tries.why("update", err)
	if strategy == workv1.UpdateStrategyTypeServerSideApply && m.live != nil {
		_, err = as.Apply(ctx, name, m.target.Object.DeepCopy(), apply)
	} else {
		// The other strategies send no patch. The result is only recorded.
		_, err = as.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{DryRun: dryRun, FieldManager: "work-agent"})
	}
	f["patch"] = tries.why("patch", err)
	f["delete"] = tries.why("delete", as.Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun}))
	return f, tries.join(c.restore(ctx, m))
}

// restore restores the objects that exist before the ManifestWork is applied.
func (c *cluster) restore(ctx context.Context, m *manifest) error {
	if m.absent {
		return c.place(ctx, m, nil)
	}
	return nil
}

// place deletes the live object of an RBAC manifest and creates the given object, if any.
func (c *cluster) place(ctx context.Context, m *manifest, object *unstructured.Unstructured) error {
	if m.live == nil {
		return nil
	}
	client := of(c.admin, m)
	if err := client.Delete(ctx, m.target.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if object == nil {
		return nil
	}
	_, err := client.Create(ctx, object.DeepCopy(), metav1.CreateOptions{FieldManager: "others"})
	return err
}

// result returns the live object after an update: the manifest, with the live rules if the
// manifest has none.
func (m *manifest) result() *unstructured.Unstructured {
	result := m.target.Object.DeepCopy()
	if _, given := result.Object["rules"]; !given && m.live != nil && m.live.Object["rules"] != nil {
		result.Object["rules"] = m.live.DeepCopy().Object["rules"]
	}
	return result
}

// before returns the live object before the ManifestWork is applied, or nil if none exists.
func (m *manifest) before() *unstructured.Unstructured {
	if m.absent {
		return nil
	}
	return m.live
}

// after returns the live object after the ManifestWork is applied, or nil if none exists.
func (m *manifest) after() *unstructured.Unstructured {
	switch {
	case m.target.Strategy == workv1.UpdateStrategyTypeReadOnly:
		return m.before()
	case m.absent:
		return m.target.Object
	case m.target.Strategy == workv1.UpdateStrategyTypeCreateOnly:
		return m.live
	}
	return m.result()
}

// remembered reports whether the agent's decision is independent of the live object, so that the
// agent can cache it.
func (m *manifest) remembered() bool {
	if m.live == nil || m.resource.binds() {
		return m.delivers == nil
	}
	_, given := m.target.Object.Object["rules"]
	return given && m.live.Object["aggregationRule"] == nil
}

// replaced reports whether an update replaces the live object, because the roleRef of a binding
// is immutable.
func (m *manifest) replaced() bool {
	return m.target.Strategy == workv1.UpdateStrategyTypeUpdate && m.live != nil &&
		!reflect.DeepEqual(m.live.Object["roleRef"], m.target.Object.Object["roleRef"])
}

// sent returns the verbs of the requests that apply a manifest as the executor, for any live
// object.
func (m *manifest) sent() []string {
	switch m.target.Strategy {
	case workv1.UpdateStrategyTypeReadOnly:
		return []string{"get"}
	case workv1.UpdateStrategyTypeCreateOnly:
		return []string{"get", "create"}
	case workv1.UpdateStrategyTypeServerSideApply:
		if !m.target.Removed {
			// An update removes the owner reference.
			return []string{"get", "create", "patch", "update"}
		}
		return []string{"get", "create", "patch"}
	}
	if m.replaced() {
		return []string{"get", "create", "delete"}
	}
	return []string{"get", "create", "update"}
}

// wanted returns the verbs that the executor requires for the whole lifecycle.
func (m *manifest) wanted() []string {
	var verbs []string
	switch m.target.Strategy {
	case workv1.UpdateStrategyTypeReadOnly:
		return []string{"get"}
	case workv1.UpdateStrategyTypeCreateOnly:
		verbs = []string{"get", "create"}
	default:
		verbs = []string{"get", "create", "update", "patch"}
	}
	if m.target.Removed || m.resource.binds() && m.target.Strategy == workv1.UpdateStrategyTypeUpdate {
		// If its roleRef changes, the agent deletes and creates a binding.
		verbs = append(verbs, "delete")
	}
	return verbs
}

// attempts records the errors of the requests for a manifest.
type attempts struct {
	*manifest
	unexpected error
}

// why returns the reason of a denial, or "" if the request is not denied, even if it fails for
// another reason.
func (a *attempts) why(request string, err error) string {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
	case apierrors.IsForbidden(err):
		return request + ": " + err.Error()
	case apierrors.IsNotFound(err) && a.resource.binds() && request != "get" && request != "delete":
		// The role does not exist. The API server looks up its rules before it returns the
		// error.
		return request + ": " + err.Error()
	case apierrors.IsNotFound(err) && request != "create":
	case apierrors.IsInvalid(err) && request == "update":
		// The update of a custom resource requires a resourceVersion, and roleRef is immutable.
	default:
		a.unexpected = fmt.Errorf("%s, %s: %w", a.manifest, request, err)
	}
	return ""
}

func (a *attempts) join(err error) error {
	if a.unexpected != nil {
		return a.unexpected
	}
	return err
}
