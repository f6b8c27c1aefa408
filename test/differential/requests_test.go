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

// fate is what becomes of the requests about the object of a manifest: by verb,
// why the request is forbidden, and empty if it passes.
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

// try sends every request that the lifecycle of an object can take, as the
// executor. What is on the cluster before, RBAC objects aside, makes no difference:
// requests are authorized first. Afterwards those are there as before the work.
func (c *cluster) try(ctx context.Context, m *manifest) (fate, error) {
	f, tries := fate{}, &attempts{manifest: m}
	as, name := of(c.executor, m), m.target.Name
	strategy := m.target.Strategy
	create := metav1.CreateOptions{DryRun: dryRun, FieldManager: "work-agent"}
	apply := metav1.ApplyOptions{DryRun: dryRun, FieldManager: "work-agent", Force: true}
	if strategy == workv1.UpdateStrategyTypeServerSideApply {
		_, err := as.Apply(ctx, name, m.target.Object.DeepCopy(), apply)
		f["create"] = tries.why("apply, of nothing,", err)
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
		// Under the other strategies nothing is patched; whether it could be is of interest only.
		_, err = as.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{DryRun: dryRun, FieldManager: "work-agent"})
	}
	f["patch"] = tries.why("patch", err)
	f["delete"] = tries.why("delete", as.Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun}))
	return f, tries.join(c.restore(ctx, m))
}

// restore leaves on the cluster what is there before the work is applied.
func (c *cluster) restore(ctx context.Context, m *manifest) error {
	if m.absent {
		return c.place(ctx, m, nil)
	}
	return nil
}

// place has nothing but the given object, if any, under the name of a manifest for
// an RBAC object.
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

// result is what an update makes of the live object: the manifest, with the rules
// that it does not give.
func (m *manifest) result() *unstructured.Unstructured {
	result := m.target.Object.DeepCopy()
	if _, given := result.Object["rules"]; !given && m.live != nil && m.live.Object["rules"] != nil {
		result.Object["rules"] = m.live.DeepCopy().Object["rules"]
	}
	return result
}

// before is the live object before the work is applied, after that once it is; nil
// if there is none.
func (m *manifest) before() *unstructured.Unstructured {
	if m.absent {
		return nil
	}
	return m.live
}

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

// remembered is whether the agent judges the manifest the same whatever is on the
// cluster under its name.
func (m *manifest) remembered() bool {
	if m.live == nil || m.resource.binds() {
		return m.delivers == nil
	}
	_, given := m.target.Object.Object["rules"]
	return given && m.live.Object["aggregationRule"] == nil
}

// replaced is whether an update has to replace the live object: the roleRef of a
// binding cannot be changed.
func (m *manifest) replaced() bool {
	return m.target.Strategy == workv1.UpdateStrategyTypeUpdate && m.live != nil &&
		!reflect.DeepEqual(m.live.Object["roleRef"], m.target.Object.Object["roleRef"])
}

// sent are the verbs of the requests that are made as the executor to apply a
// manifest, whatever is on the cluster.
func (m *manifest) sent() []string {
	switch m.target.Strategy {
	case workv1.UpdateStrategyTypeReadOnly:
		return []string{"get"}
	case workv1.UpdateStrategyTypeCreateOnly:
		return []string{"get", "create"}
	case workv1.UpdateStrategyTypeServerSideApply:
		if !m.target.Removed {
			// To give up the owner reference.
			return []string{"get", "create", "patch", "update"}
		}
		return []string{"get", "create", "patch"}
	}
	if m.replaced() {
		return []string{"get", "create", "delete"}
	}
	return []string{"get", "create", "update"}
}

// wanted are the verbs that the executor must hold: those of the whole lifecycle.
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
		// A binding is deleted when it has another roleRef.
		verbs = append(verbs, "delete")
	}
	return verbs
}

// attempts tells what the errors of requests about a manifest mean.
type attempts struct {
	*manifest
	unexpected error
}

// why returns why a request is forbidden; it is empty if it is not, even if it fails
// for another reason.
func (a *attempts) why(request string, err error) string {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
	case apierrors.IsForbidden(err):
		return request + ": " + err.Error()
	case apierrors.IsNotFound(err) && a.resource.binds() && request != "get" && request != "delete":
		// The role does not exist; it is there that rules are looked up.
		return request + ": " + err.Error()
	case apierrors.IsNotFound(err) && request != "create":
	case apierrors.IsInvalid(err) && request == "update":
		// A custom resource is updated with its version, and roleRef is never.
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
