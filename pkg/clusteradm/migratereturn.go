package clusteradm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// serverAnnotations are annotations that have a meaning only for the server.
var serverAnnotations = []string{rbacv1alpha1.DeliveredAnnotation}

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

// copyFromServer makes the objects of the CustomResourceDefinitions equal to the objects of the server. Objects that a
// CustomResourceDefinition does not have yet get a new UID there. It returns what the CustomResourceDefinitions
// cannot store.
func (m *migration) copyFromServer(ctx context.Context, dryRun bool) (map[string]int, []finding, error) {
	c := &copying{migration: m, uids: map[types.UID]types.UID{}, permissions: map[types.UID]*unstructured.Unstructured{}, counts: map[string]int{}}
	if dryRun {
		c.dryRun = []string{metav1.DryRunAll}
	}
	for _, kind := range m.kinds {
		if err := c.copyKind(ctx, kind); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(c.findings, func(a, b finding) int { return strings.Compare(a.Subject, b.Subject) })
	return c.counts, c.findings, nil
}

// copying is one copy from the server to the CustomResourceDefinitions.
type copying struct {
	*migration
	dryRun []string

	mu sync.Mutex
	// uids are the UIDs in the CustomResourceDefinitions by the UIDs in the server.
	uids map[types.UID]types.UID
	// permissions are the ClusterPermissions by their UIDs in the server.
	permissions map[types.UID]*unstructured.Unstructured
	counts      map[string]int
	findings    []finding
}

func (c *copying) copyKind(ctx context.Context, kind *customKind) error {
	served, err := listAll(ctx, c.client, kind.served())
	if err != nil {
		return err
	}
	kept, err := listAll(ctx, c.client, kind.kept())
	if err != nil {
		return err
	}
	c.counts[kind.kind] = len(served)
	wanted := map[string]*unstructured.Unstructured{}
	for name, object := range served {
		wanted[name] = c.rewrite(kind, object)
	}
	switch kind.kind {
	case "ClusterPermission":
		for _, object := range served {
			c.permissions[object.GetUID()] = object
		}
		c.withdrawPending(wanted)
	case "ManifestWork":
		if err := c.addSuccessors(ctx, wanted); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copyWorkers)
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
		c.report(warning(display(object), "the change that waits for approval is not copied", "approve it, or apply it after the migration"))
		if spec, delivered, _ := unstructured.NestedMap(approval, "delivered", "spec"); delivered {
			object.Object["spec"] = spec
		} else {
			delete(wanted, name)
		}
	}
}

// rewrite returns an object of the server as its CustomResourceDefinition stores it. Owners have been copied before.
func (c *copying) rewrite(kind *customKind, object *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range object.DeepCopy().Object {
		if key != "metadata" {
			out.Object[key] = value
		}
	}
	out.SetAPIVersion(schema.GroupVersion{Group: kind.resource.Group, Version: keptVersion}.String())
	out.SetNamespace(object.GetNamespace())
	out.SetName(object.GetName())
	out.SetLabels(object.GetLabels())
	annotations := object.GetAnnotations()
	for _, annotation := range serverAnnotations {
		delete(annotations, annotation)
	}
	if denied := denialTime(object); kind.kind == kindManagedCluster && denied != "" && annotations[acceptedAnnotation] == "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[acceptedAnnotation] = denied
	}
	out.SetAnnotations(annotations)
	out.SetFinalizers(object.GetFinalizers())
	owners := object.GetOwnerReferences()
	for i := range owners {
		if uid, copied := c.uids[owners[i].UID]; copied {
			owners[i].UID = uid
		}
	}
	if len(owners) > 0 {
		out.SetOwnerReferences(owners)
	}
	return out
}

// copyObject creates or updates an object of a CustomResourceDefinition. served is nil for a successor.
func (c *copying) copyObject(ctx context.Context, kind *customKind, served, wanted, kept *unstructured.Unstructured) error {
	client := c.client.Resource(kind.kept()).Namespace(wanted.GetNamespace())
	stored := kept
	err := persist(ctx, func(ctx context.Context) (err error) {
		switch {
		case kept == nil:
			stored, err = client.Create(ctx, wanted, metav1.CreateOptions{DryRun: c.dryRun, FieldManager: fieldManager})
			if apierrors.IsAlreadyExists(err) {
				stored, err = client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
			}
		case !sameObject(wanted, kept):
			update := wanted.DeepCopy()
			update.SetUID(kept.GetUID())
			update.SetResourceVersion(kept.GetResourceVersion())
			stored, err = client.Update(ctx, update, metav1.UpdateOptions{DryRun: c.dryRun, FieldManager: fieldManager})
		}
		return err
	})
	var lost []string
	if err == nil {
		lost = notStatus(differences(withoutServerFields(wanted.Object), comparable(stored.Object)))
		// A dry run stores nothing whose status could be written.
		if kind.hasStatus() && (kept != nil || len(c.dryRun) == 0) {
			if stored, err = c.copyStatus(ctx, kind, wanted, stored); err == nil {
				lost = append(lost, differences(map[string]any{"status": withoutServerFields(wanted.Object)["status"]}, stored.Object)...)
			}
		}
	}
	// The namespace may be missing or being deleted.
	if refused(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		c.report(bad(display(wanted), err.Error(), "change or delete the object"))
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", display(wanted), err)
	}
	if len(lost) > 0 {
		c.report(warning(display(wanted), "its CustomResourceDefinition does not store "+strings.Join(lost[:min(len(lost), maxListed)], ", "), ""))
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
		err := client.Delete(ctx, stored.GetName(), metav1.DeleteOptions{DryRun: c.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", display(wanted), err)
		}
	}
	return nil
}

// notStatus returns the paths outside of the status.
func notStatus(paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasPrefix(path, ".status") })
}

func (c *copying) copyStatus(ctx context.Context, kind *customKind, wanted, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(differences(wanted.Object["status"], stored.Object["status"])) == 0 && len(differences(stored.Object["status"], wanted.Object["status"])) == 0 {
		return stored, nil
	}
	update := stored.DeepCopy()
	update.SetAPIVersion(wanted.GetAPIVersion())
	if wanted.Object["status"] == nil {
		delete(update.Object, "status")
	} else {
		update.Object["status"] = wanted.Object["status"]
	}
	err := persist(ctx, func(ctx context.Context) (err error) {
		stored, err = c.client.Resource(kind.kept()).Namespace(wanted.GetNamespace()).UpdateStatus(ctx, update, metav1.UpdateOptions{DryRun: c.dryRun, FieldManager: fieldManager})
		return err
	})
	return stored, err
}

func (c *copying) report(f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, f)
}

// withoutServerFields returns an object without what only the server reports.
func withoutServerFields(object map[string]any) map[string]any {
	out := comparable(object)
	status, ok := out["status"].(map[string]any)
	if !ok {
		return out
	}
	status = maps.Clone(status)
	for _, field := range []string{"acceptance", "executorChoice", "approval", "clusters", "serviceAccountRef"} {
		delete(status, field)
	}
	out["status"] = status
	return out
}

// sameObject reports whether two objects have the same spec and the metadata that users and controllers write.
func sameObject(a, b *unstructured.Unstructured) bool {
	parts := func(object *unstructured.Unstructured) map[string]any {
		out := comparable(object.Object)
		delete(out, "status")
		metadata := map[string]any{}
		for _, field := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
			if value, found, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", field); found {
				metadata[field] = value
			}
		}
		out["metadata"] = metadata
		return out
	}
	return len(differences(parts(a), parts(b))) == 0 && len(differences(parts(b), parts(a))) == 0
}

// removeKept removes an object that the server does not have any more. Its controllers finished with it there.
func (c *copying) removeKept(ctx context.Context, kind *customKind, kept *unstructured.Unstructured) error {
	client := c.client.Resource(kind.kept()).Namespace(kept.GetNamespace())
	err := persist(ctx, func(ctx context.Context) error {
		if len(kept.GetFinalizers()) > 0 {
			_, err := client.Patch(ctx, kept.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{DryRun: c.dryRun})
			if err != nil {
				return err
			}
		}
		return client.Delete(ctx, kept.GetName(), metav1.DeleteOptions{DryRun: c.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if refused(err) {
		c.report(bad(display(kept), "the server does not have it, and it cannot be removed: "+err.Error(), "correct the object in version "+keptVersion))
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove %s: %w", display(kept), err)
	}
	return nil
}

// accountSecrets calls change with each Secret of a ManagedServiceAccount and its owner references. The hub keeps
// what change returns.
func (m *migration) accountSecrets(ctx context.Context, change func(secret *metav1.PartialObjectMetadata) []metav1.OwnerReference) error {
	secrets, err := m.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(ctx, metav1.ListOptions{LabelSelector: accountLabel + "=true"})
	if err != nil {
		return err
	}
	var errs []error
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		owners := change(secret)
		if slices.EqualFunc(owners, secret.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners, "resourceVersion": secret.ResourceVersion}})
		if err != nil {
			return err
		}
		_, err = m.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(secret.Namespace).
			Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("secret/%s in %s: %w", secret.Name, secret.Namespace, err))
		}
	}
	return errors.Join(errs...)
}

func isAccount(owner metav1.OwnerReference) bool { return owner.Kind == "ManagedServiceAccount" }

// detachSecrets removes the owners of Secrets whose account has another UID in the CustomResourceDefinition. Otherwise
// the hub's garbage collector would delete the Secrets when it sees the account with that UID.
func (m *migration) detachSecrets(ctx context.Context) error {
	accounts, err := m.keptAccounts(ctx, func(kind *customKind) schema.GroupVersionResource { return kind.kept() })
	if err != nil || accounts == nil {
		return err
	}
	return m.accountSecrets(ctx, func(secret *metav1.PartialObjectMetadata) []metav1.OwnerReference {
		account := accounts[secret.Namespace+"/"+secret.Name]
		return slices.DeleteFunc(slices.Clone(secret.OwnerReferences), func(owner metav1.OwnerReference) bool {
			return isAccount(owner) && account != nil && account.GetUID() != owner.UID
		})
	})
}

// attachSecrets makes the accounts of the CustomResourceDefinition the owners of their Secrets.
func (m *migration) attachSecrets(ctx context.Context) error {
	accounts, err := m.keptAccounts(ctx, func(kind *customKind) schema.GroupVersionResource { return kind.served() })
	if err != nil || accounts == nil {
		return err
	}
	return m.accountSecrets(ctx, func(secret *metav1.PartialObjectMetadata) []metav1.OwnerReference {
		account := accounts[secret.Namespace+"/"+secret.Name]
		if account == nil || slices.ContainsFunc(secret.OwnerReferences, isAccount) {
			return secret.OwnerReferences
		}
		return append(slices.Clone(secret.OwnerReferences), metav1.OwnerReference{
			APIVersion: account.GetAPIVersion(), Kind: account.GetKind(), Name: account.GetName(), UID: account.GetUID(),
		})
	})
}

func (m *migration) keptAccounts(ctx context.Context, resource func(*customKind) schema.GroupVersionResource) (map[string]*unstructured.Unstructured, error) {
	for _, kind := range m.kinds {
		if kind.kind == "ManagedServiceAccount" {
			return listAll(ctx, m.client, resource(kind))
		}
	}
	return nil, nil
}

func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}
