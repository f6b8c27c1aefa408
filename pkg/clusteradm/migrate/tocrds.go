package migrate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// acceptedAnnotation marks a ManagedCluster that the controller of OCM must not accept by itself: with the feature gate
// ManagedClusterAutoApproval, it accepts every other cluster.
const acceptedAnnotation = "open-cluster-management.io/automatically-accepted-on"

// denialTime returns the time at which somebody denied a cluster, or an empty string.
func denialTime(cluster *unstructured.Unstructured) string {
	accepted, _, _ := unstructured.NestedBool(cluster.Object, "spec", "hubAcceptsClient")
	decided, _, _ := unstructured.NestedString(cluster.Object, "status", "acceptance", "decidedAt")
	if accepted {
		return ""
	}
	return decided
}

func (m *migration) moveToCRDs(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	closing := handover.Step{Name: "close the CustomResourceDefinitions", Run: func(ctx context.Context) error { return m.keepVersions(ctx, false) }}
	steps := []handover.Step{closing}
	if len(pending) < len(m.kinds) {
		steps = []handover.Step{{Name: "open the CustomResourceDefinitions", Run: func(ctx context.Context) error { return m.keepVersions(ctx, true) }}}
		// An earlier run that has switched a kind has copied all objects. Owners that are served locally by now do not show
		// their UIDs in the server, to which owner references there refer.
		copies := len(pending) == 0
		if copies {
			steps = append(steps, handover.Step{Name: "check all objects", Run: m.checkBack})
		}
		steps = append(steps,
			handover.Step{Name: "refuse writes", Run: func(ctx context.Context) error { return errors.Join(m.freeze(ctx), m.freezeSecrets(ctx)) }},
			handover.Step{Name: "stop the controllers of the server", Run: m.hold})
		if copies {
			steps = append(steps, handover.Step{Name: "copy the objects", Run: func(ctx context.Context) error { return m.copied(m.copyFromServer(ctx)) }})
		}
		steps = append(steps,
			handover.Step{Name: "wait until all watches of the server have ended", Run: func(ctx context.Context) error { return handover.WaitNoticed(ctx, m.Kube) }},
			closing,
			handover.Step{Name: "serve requests from the CustomResourceDefinitions", Run: m.serveLocally})
	}
	if err := m.steps(ctx, append(steps,
		handover.Step{Name: "assign the Secrets to their accounts", Run: m.assignSecrets},
		handover.Step{Name: "stop the server", Run: m.stopServer},
		handover.Step{Name: "accept writes", Run: func(ctx context.Context) error {
			return m.removePolicies(ctx, accountPolicy, keepPolicy, handover.FreezePolicy)
		}},
		handover.Step{Name: "replace the ManifestWorks of ClusterPermissions that have another UID", Run: m.finishSuccessors},
		handover.Step{Name: "start the controllers of OCM", Run: func(ctx context.Context) error {
			return errors.Join(m.startControllers(ctx), m.revokeUpstreamAgents(ctx))
		}},
	)); err != nil {
		return err
	}
	return m.Refuse(m.left)
}

// checkBack refuses to begin with objects that the CustomResourceDefinitions would refuse, while nothing has changed yet.
func (m *migration) checkBack(ctx context.Context) error {
	_, findings, err := m.copyFromServer(ctx, metav1.DryRunAll)
	if err != nil {
		return err
	}
	// The copy reports the others.
	return m.Refuse(slices.DeleteFunc(findings, func(f cli.Finding) bool { return f.State != cli.StateBad }))
}

// stopServer stops the server, so that its watches end and clients read the CustomResourceDefinitions. Its data stay.
func (m *migration) stopServer(ctx context.Context) error {
	if err := cli.Persist(ctx, func(ctx context.Context) error {
		_, err := m.Kube.AppsV1().Deployments(manifests.HubNamespace).Patch(ctx, manifests.ServerName, types.MergePatchType,
			[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{FieldManager: cli.FieldManager})
		return err
	}); apierrors.IsNotFound(err) {
		m.Say("the server does not run on the hub: stop it, so that clients notice that it no longer serves")
		return nil
	} else if err != nil {
		return err
	}
	return cli.WaitForNoPods(ctx, m.Kube, manifests.HubNamespace, "app="+manifests.ServerName)
}

// copyFromServer makes the objects of the CustomResourceDefinitions equal to the objects of the server. Objects that a
// CustomResourceDefinition does not have yet get a new UID there. It returns what the CustomResourceDefinitions
// cannot store.
func (m *migration) copyFromServer(ctx context.Context, dryRun ...string) (map[string]int, []cli.Finding, error) {
	c := &copying{migration: m, dryRun: dryRun, uids: map[types.UID]types.UID{}, permissions: map[types.UID]*unstructured.Unstructured{}, counts: map[string]int{}}
	for _, kind := range m.kinds {
		if err := c.copyKind(ctx, kind); err != nil {
			return nil, nil, err
		}
	}
	cli.SortBySubject(c.findings)
	return c.counts, c.findings, nil
}

type copying struct {
	*migration
	dryRun []string

	mu sync.Mutex
	// uids are the UIDs in the CustomResourceDefinitions by the UIDs in the server.
	uids map[types.UID]types.UID
	// permissions are the ClusterPermissions by their UIDs in the server.
	permissions map[types.UID]*unstructured.Unstructured
	counts      map[string]int
	findings    []cli.Finding
}

func (c *copying) copyKind(ctx context.Context, kind *handover.CustomKind) error {
	served, err := handover.ListAll(ctx, c.Dynamic, kind.Served())
	if err != nil {
		return err
	}
	kept, err := handover.ListAll(ctx, c.Dynamic, kind.Kept())
	if err != nil {
		return err
	}
	c.counts[kind.Name] = len(served)
	wanted := map[string]*unstructured.Unstructured{}
	for name, object := range served {
		wanted[name] = c.rewrite(kind, object)
	}
	switch kind.Name {
	case handover.KindClusterPermission:
		for _, object := range served {
			c.permissions[object.GetUID()] = object
		}
		c.withdrawPending(wanted)
	case handover.KindManifestWork:
		if err := c.addSuccessors(ctx, wanted); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(handover.CopyWorkers)
	for name, object := range wanted {
		group.Go(func() error { return c.copyObject(ctx, kind, served[name], object, kept[name]) })
	}
	for name, object := range kept {
		if wanted[name] == nil {
			group.Go(func() error { return c.removeKept(ctx, kind, object) })
		}
	}
	return group.Wait()
}

// withdrawPending replaces each spec that waits for approval by the delivered one, and removes ClusterPermissions that
// deliver nothing. The controller of OCM knows no approval, so it would deliver them.
func (c *copying) withdrawPending(wanted map[string]*unstructured.Unstructured) {
	for name, object := range wanted {
		approval, _, _ := unstructured.NestedMap(object.Object, "status", "approval")
		if approval["pending"] == nil {
			continue
		}
		c.report(cli.Warning(manifests.Display(object), "the change that waits for approval is not copied", "approve it, or apply it after the migration"))
		if spec, delivered, _ := unstructured.NestedMap(approval, "delivered", "spec"); delivered {
			object.Object["spec"] = spec
		} else {
			delete(wanted, name)
		}
	}
}

// rewrite returns an object of the server as its CustomResourceDefinition stores it. Owners have been copied before.
func (c *copying) rewrite(kind *handover.CustomKind, object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	metadata := map[string]any{}
	for _, field := range []string{"namespace", "name", "labels", "annotations", "finalizers", "ownerReferences"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(out.Object, "metadata", field); found {
			metadata[field] = value
		}
	}
	out.Object["metadata"] = metadata
	out.SetAPIVersion(kind.Kept().GroupVersion().String())
	// It has a meaning only for the server.
	unstructured.RemoveNestedField(out.Object, "metadata", "annotations", rbacv1alpha1.DeliveredAnnotation)
	if denied := denialTime(object); kind.Name == handover.KindManagedCluster && denied != "" && out.GetAnnotations()[acceptedAnnotation] == "" {
		out.SetAnnotations(labels.Merge(out.GetAnnotations(), map[string]string{acceptedAnnotation: denied}))
	}
	if owners := out.GetOwnerReferences(); len(owners) > 0 {
		for i := range owners {
			if uid, copied := c.uids[owners[i].UID]; copied {
				owners[i].UID = uid
			}
		}
		out.SetOwnerReferences(owners)
	}
	return out
}

// copyObject creates or updates an object of a CustomResourceDefinition. served is nil for a successor.
func (c *copying) copyObject(ctx context.Context, kind *handover.CustomKind, served, wanted, kept *unstructured.Unstructured) error {
	stored, lost, err := c.store(ctx, kind, wanted, kept)
	// The namespace may be missing or being deleted.
	if handover.Refused(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		c.report(cli.Bad(manifests.Display(wanted), err.Error(), "change or delete the object"))
		return nil
	}
	if err != nil {
		return cli.Prefix(err, "copy %s", manifests.Display(wanted))
	}
	if len(lost) > 0 {
		c.report(cli.Warning(manifests.Display(wanted), "its CustomResourceDefinition does not store "+cli.Some(lost), ""))
	}
	if served == nil {
		return nil
	}
	if len(c.dryRun) == 0 || kept != nil {
		c.mu.Lock()
		c.uids[served.GetUID()] = stored.GetUID()
		c.mu.Unlock()
	}
	if served.GetDeletionTimestamp() != nil && stored.GetDeletionTimestamp() == nil {
		err := c.kept(kind, wanted).Delete(ctx, stored.GetName(), metav1.DeleteOptions{DryRun: c.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		return cli.Prefix(cli.IgnoreNotFound(err), "delete %s", manifests.Display(wanted))
	}
	return nil
}

// store writes an object and its status. It returns the stored object, and the paths of what it does not contain.
func (c *copying) store(ctx context.Context, kind *handover.CustomKind, wanted, kept *unstructured.Unstructured) (stored *unstructured.Unstructured, lost []string, err error) {
	client := c.kept(kind, wanted)
	if err := cli.Persist(ctx, func(ctx context.Context) (err error) {
		if kept == nil {
			stored, err = client.Create(ctx, wanted, metav1.CreateOptions{DryRun: c.dryRun, FieldManager: cli.FieldManager})
			if apierrors.IsAlreadyExists(err) {
				stored, err = client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
			}
			return err
		}
		// Most objects have not changed, and the hub may refuse updates of some. The comparison is exact, because manifests
		// may contain anything.
		if equality.Semantic.DeepEqual(written(kind, wanted), written(kind, kept)) {
			stored = kept
			return nil
		}
		update := wanted.DeepCopy()
		update.SetUID(kept.GetUID())
		update.SetResourceVersion(kept.GetResourceVersion())
		stored, err = client.Update(ctx, update, metav1.UpdateOptions{DryRun: c.dryRun, FieldManager: cli.FieldManager})
		return err
	}); err != nil {
		return nil, nil, err
	}
	lost = handover.Differences(withoutStatus(wanted), handover.Comparable(stored.Object))
	// A dry run stores nothing whose status could be written.
	if !kind.HasStatus() || kept == nil && len(c.dryRun) > 0 {
		return stored, lost, nil
	}
	if !handover.Equal(wanted.Object["status"], stored.Object["status"]) {
		update := stored.DeepCopy()
		update.SetAPIVersion(wanted.GetAPIVersion())
		if delete(update.Object, "status"); wanted.Object["status"] != nil {
			update.Object["status"] = wanted.Object["status"]
		}
		if err := cli.Persist(ctx, func(ctx context.Context) (err error) {
			stored, err = client.UpdateStatus(ctx, update, metav1.UpdateOptions{DryRun: c.dryRun, FieldManager: cli.FieldManager})
			return err
		}); err != nil {
			return nil, nil, err
		}
	}
	return stored, append(lost, handover.Differences(statusOfBoth(wanted), stored.Object)...), nil
}

func (c *copying) kept(kind *handover.CustomKind, object *unstructured.Unstructured) dynamic.ResourceInterface {
	return c.Dynamic.Resource(kind.Kept()).Namespace(object.GetNamespace())
}

func (c *copying) report(f cli.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, f)
}

// written returns what an update of an object in its CustomResourceDefinition writes.
func written(kind *handover.CustomKind, object *unstructured.Unstructured) []any {
	out := []any{object.Object["spec"], object.GetLabels(), object.GetAnnotations(), object.GetFinalizers(), object.GetOwnerReferences()}
	if !kind.HasStatus() {
		out = append(out, object.Object["status"])
	}
	return out
}

func withoutStatus(object *unstructured.Unstructured) map[string]any {
	out := handover.Comparable(object.Object)
	delete(out, "status")
	return out
}

// statusOfBoth returns the status of an object of the server without what only the server reports.
func statusOfBoth(object *unstructured.Unstructured) map[string]any {
	status, _ := object.Object["status"].(map[string]any)
	status = maps.Clone(status)
	for _, field := range []string{"acceptance", "executorChoice", "approval", "clusters", "serviceAccountRef"} {
		delete(status, field)
	}
	return map[string]any{"status": status}
}

// removeKept removes an object that the server no longer has. Its controllers finished with it there.
func (c *copying) removeKept(ctx context.Context, kind *handover.CustomKind, kept *unstructured.Unstructured) error {
	client := c.kept(kind, kept)
	err := cli.Persist(ctx, func(ctx context.Context) error {
		if len(kept.GetFinalizers()) > 0 {
			if _, err := client.Patch(ctx, kept.GetName(), types.MergePatchType, withoutFinalizers, metav1.PatchOptions{DryRun: c.dryRun}); err != nil {
				return err
			}
		}
		return client.Delete(ctx, kept.GetName(), metav1.DeleteOptions{DryRun: c.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if handover.Refused(err) {
		c.report(cli.Bad(manifests.Display(kept), "the server does not have it, and it cannot be removed: "+err.Error(), "correct the object in version "+handover.KeptVersion))
		return nil
	}
	return cli.Prefix(cli.IgnoreNotFound(err), "remove %s", manifests.Display(kept))
}
