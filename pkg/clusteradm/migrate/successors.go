package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// successorRecord begins the names of the ConfigMaps with the ManifestWorks that a migration replaces. Users may write
	// ManifestWorks and their annotations, so these do not say which ManifestWork replaces which.
	successorRecord = "hub-apiserver-migration-successors-"
	// successorsInRecord bounds the size of a ConfigMap.
	successorsInRecord = 1000
	// successorPatience is the time without progress after which a migration continues without the remaining successors.
	successorPatience = 2 * time.Minute
)

// successor is the ManifestWork that takes over the objects of the former ManifestWork of a ClusterPermission, which has
// another UID in its CustomResourceDefinition.
type successor struct {
	Namespace  string    `json:"namespace"`
	Permission string    `json:"permission"`
	UID        types.UID `json:"uid"`
	Former     string    `json:"former"`

	// why is the reason why the former ManifestWork is not replaced yet, and wait is true if that may change soon.
	why  string
	wait bool
}

// name is the name that the controller of OCM expects.
func (s successor) name() string { return permissionWork(s.Permission, s.UID) }

// permissionWork returns the name of the ManifestWork of a ClusterPermission.
func permissionWork(name string, uid types.UID) string {
	return name + "-" + string(uid)[:min(len(uid), 5)]
}

// owner is the owner reference that a successor gets once it has taken over the objects. An agent lets no other
// ManifestWork of a ClusterPermission take over objects.
func (s successor) owner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: handover.KindClusterPermission, Name: s.Permission, UID: s.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// addSuccessors adds a ManifestWork for the ManifestWork of each ClusterPermission whose UID is new: the controller of OCM
// derives the name from the UID. The successor takes over the objects on the managed cluster.
func (c *copying) addSuccessors(ctx context.Context, wanted map[string]*unstructured.Unstructured) error {
	var added []successor
	for former, permission := range c.permissions {
		s := successor{Namespace: permission.GetNamespace(), Permission: permission.GetName(), UID: c.uids[former], Former: permissionWork(permission.GetName(), former)}
		work := wanted[s.Namespace+"/"+s.Former]
		if s.UID == "" || s.UID == former || s.name() == s.Former || work == nil {
			continue
		}
		if why := s.foreign(work); why != "" {
			c.report(cli.Warning(manifests.Display(work), why, "delete it, if it grants the permissions of "+manifests.Display(permission)))
			continue
		}
		key := s.Namespace + "/" + s.name()
		if other := wanted[key]; other != nil {
			c.report(cli.Bad(manifests.Display(other), "its name is that of the ManifestWork of "+manifests.Display(permission)+" after the migration", "delete the object"))
			continue
		}
		copied := work.DeepCopy()
		copied.SetName(s.name())
		copied.SetFinalizers(nil)
		copied.SetAnnotations(nil)
		copied.SetOwnerReferences(nil)
		delete(copied.Object, "status")
		wanted[key] = copied
		added = append(added, s)
	}
	if len(added) == 0 || len(c.dryRun) > 0 {
		return nil
	}
	recorded, err := c.successors(ctx)
	if err != nil {
		return err
	}
	added = slices.DeleteFunc(added, func(s successor) bool { return slices.Contains(recorded, s) })
	return c.recordSuccessors(ctx, append(recorded, added...))
}

// foreign returns why a ManifestWork is not the former one of the ClusterPermission, or an empty string.
func (s successor) foreign(work *unstructured.Unstructured) string {
	owner := metav1.GetControllerOf(work)
	if owner == nil || owner.UID != s.UID || owner.Kind != handover.KindClusterPermission || owner.Name != s.Permission {
		return "it has the name of the ManifestWork of ClusterPermission " + s.Permission + ", which does not own it"
	}
	return ""
}

func (m *migration) successors(ctx context.Context) ([]successor, error) {
	var all []successor
	for i := 0; ; i++ {
		record, err := cli.Optional(m.Kube.CoreV1().ConfigMaps(manifests.HubNamespace).Get(ctx, successorRecord+strconv.Itoa(i), metav1.GetOptions{}))
		if err != nil || record == nil {
			return all, err
		}
		var part []successor
		if err := json.Unmarshal([]byte(record.Data["successors"]), &part); err != nil {
			return nil, fmt.Errorf("ConfigMap %s in %s: %w", record.Name, manifests.HubNamespace, err)
		}
		all = append(all, part...)
	}
}

// recordSuccessors replaces the record. If it is interrupted, the record contains no fewer successors than the new one.
func (m *migration) recordSuccessors(ctx context.Context, all []successor) error {
	records := m.Kube.CoreV1().ConfigMaps(manifests.HubNamespace)
	next := 0
	for part := range slices.Chunk(all, successorsInRecord) {
		content, err := json.Marshal(part)
		if err != nil {
			return err
		}
		record := applycorev1.ConfigMap(successorRecord+strconv.Itoa(next), manifests.HubNamespace).WithData(map[string]string{"successors": string(content)})
		if err := cli.Persist(ctx, func(ctx context.Context) error {
			_, err := records.Apply(ctx, record, metav1.ApplyOptions{FieldManager: cli.FieldManager, Force: true})
			return err
		}); err != nil {
			return err
		}
		next++
	}
	for ; ; next++ {
		if err := records.Delete(ctx, successorRecord+strconv.Itoa(next), metav1.DeleteOptions{}); err != nil {
			return cli.IgnoreNotFound(err)
		}
	}
}

// finishSuccessors waits until successors are applied, and then removes the ManifestWorks that they replace. The objects
// on the managed clusters stay. What does not become ready, or is not as it was copied, it keeps and reports.
func (m *migration) finishSuccessors(ctx context.Context) error {
	recorded, err := m.successors(ctx)
	if err != nil || len(recorded) == 0 {
		return err
	}
	var waiting []*successor
	for i := range recorded {
		waiting = append(waiting, &recorded[i])
	}
	for progress := time.Now(); len(waiting) > 0 && time.Since(progress) < m.patience; {
		_ = cli.ForEach(waiting, func(s *successor) (err error) { // errors are findings
			if s.why, s.wait, err = m.advance(ctx, s); err != nil {
				s.why, s.wait = err.Error(), cli.Temporary(err)
			}
			return nil
		})
		before := len(waiting)
		if waiting = slices.DeleteFunc(waiting, func(s *successor) bool { return !s.wait }); len(waiting) < before {
			progress = time.Now()
		}
		if len(waiting) > 0 {
			if err := cli.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	recorded = slices.DeleteFunc(recorded, func(s successor) bool { return s.why == "" })
	for _, s := range recorded {
		m.left = append(m.left, cli.Bad("manifestworks/"+s.Former+" in "+s.Namespace, s.why,
			"correct this, such as by starting the agent, and run the command again; or delete the ManifestWork with spec.deleteOption.propagationPolicy Orphan"))
	}
	return m.recordSuccessors(ctx, recorded)
}

// advance takes the next step of a successor. It returns why the former ManifestWork is not replaced yet, or an empty
// string, and whether it is worth waiting.
func (m *migration) advance(ctx context.Context, s *successor) (why string, wait bool, err error) {
	works := m.Dynamic.Resource(workv1.SchemeGroupVersion.WithResource("manifestworks")).Namespace(s.Namespace)
	former, err := cli.Optional(works.Get(ctx, s.Former, metav1.GetOptions{}))
	if err != nil {
		return "", false, err
	}
	work, err := cli.Optional(works.Get(ctx, s.name(), metav1.GetOptions{}))
	switch {
	case err != nil:
		return "", false, err
	case former == nil && work == nil:
		return "", false, nil
	case former == nil:
		return s.adopt(ctx, works, work)
	}
	if why := s.foreign(former); why != "" {
		return why, false, nil
	}
	if work == nil {
		return "manifestwork/" + s.name() + ", which replaces it, does not exist", false, nil
	}
	if !sameManifests(former, work) {
		return "manifestwork/" + s.name() + ", which replaces it, has another content", false, nil
	}
	if why := notApplied(work); why != "" {
		return "manifestwork/" + s.name() + ", which replaces it: " + why, true, nil
	}
	if former.GetDeletionTimestamp() == nil {
		// If anybody changes the ManifestWork after it was checked, the patch is a conflict.
		orphan := cli.MergePatch(map[string]any{
			"metadata": map[string]any{"uid": former.GetUID(), "resourceVersion": former.GetResourceVersion()},
			"spec":     map[string]any{"deleteOption": map[string]any{"propagationPolicy": workv1.DeletePropagationPolicyTypeOrphan}},
		})
		patched, err := works.Patch(ctx, s.Former, types.MergePatchType, orphan, metav1.PatchOptions{FieldManager: cli.FieldManager})
		if err != nil {
			return "", false, err
		}
		err = works.Delete(ctx, s.Former, metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
			Preconditions:     &metav1.Preconditions{UID: ptr.To(patched.GetUID()), ResourceVersion: ptr.To(patched.GetResourceVersion())},
		})
		if cli.IgnoreNotFound(err) != nil {
			return "", false, err
		}
	}
	return "its agent has not released its objects yet", true, nil
}

func (s successor) adopt(ctx context.Context, works dynamic.ResourceInterface, work *unstructured.Unstructured) (why string, wait bool, err error) {
	owners := work.GetOwnerReferences()
	if slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == s.UID }) {
		return "", false, nil
	}
	if len(owners) > 0 {
		return "manifestwork/" + s.name() + ", which replaces it, has another owner", false, nil
	}
	patch := cli.MergePatch(map[string]any{"metadata": map[string]any{
		"uid": work.GetUID(), "resourceVersion": work.GetResourceVersion(), "ownerReferences": []metav1.OwnerReference{s.owner()},
	}})
	_, err = works.Patch(ctx, s.name(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager})
	return "", false, cli.IgnoreNotFound(err)
}

// sameManifests reports whether two ManifestWorks deliver the same objects in the same way.
func sameManifests(a, b *unstructured.Unstructured) bool {
	spec := func(work *unstructured.Unstructured) map[string]any {
		spec, _, _ := unstructured.NestedMap(work.Object, "spec")
		delete(spec, "deleteOption")
		return spec
	}
	return handover.Equal(spec(a), spec(b))
}

// notApplied returns why a ManifestWork is not applied, or an empty string.
func notApplied(work *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(work.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		switch {
		case !ok || condition["type"] != workv1.WorkApplied:
		case condition["status"] != string(metav1.ConditionTrue):
			return fmt.Sprintf("it is not applied: %v", condition["message"])
		default:
			return ""
		}
	}
	return "its agent has not applied it yet"
}
