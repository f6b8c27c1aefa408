package executor

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestExecutorReplacementRequiresBoth checks that replacing an executor by another one requires
// permission to name both, by every kind of write, whether the manifests stay or change.
func TestExecutorReplacementRequiresBoth(t *testing.T) {
	t.Parallel()
	s := newBindingScene(t)
	former := types.NamespacedName{Namespace: "kube-system", Name: "admin"}
	works := s.OCM.WorkV1().ManifestWorks(s.cluster)
	rob := framework.NewCaller(t, s.Hub, "replacing-rob")
	rob.May(t, s.cluster, writeWorks, executeAs(executorName(judgedExecutor)))
	created := framework.Must(works.Create(t.Context(), judgedWork("replaced", executorOf(former)), metav1.CreateOptions{}))(t)
	theirs := rob.OCM.WorkV1().ManifestWorks(s.cluster)
	replace := func(name string) error {
		_, err := theirs.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s}}`, asJSON(t, judgedExecutor)), metav1.PatchOptions{})
		return err
	}
	attempts := workChanges(t, theirs, created.Name, "of rob", judgedExecutor)
	attempts["the executor only"] = func() error { return replace(created.Name) }
	attempts["the same manifest and another one"] = func() error {
		_, err := theirs.Patch(t.Context(), created.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s,"workload":{"manifests":[%s,%s]}}}`,
			asJSON(t, judgedExecutor), unsorted, framework.ConfigMapWork("other").Spec.Workload.Manifests[0].Raw), metav1.PatchOptions{})
		return err
	}
	var rule rbacv1.PolicyRule
	for way, attempt := range attempts {
		rule = workRefused(t, way, attempt(), rob.Name, s.cluster, former)
	}
	if now := framework.Must(works.Get(t.Context(), created.Name, metav1.GetOptions{}))(t); now.ResourceVersion != created.ResourceVersion {
		t.Errorf("resourceVersion after the denials = %s, want %s", now.ResourceVersion, created.ResourceVersion)
	}
	rob.May(t, s.cluster, rule)
	framework.Eventually(t, "the rule in the error message allows the replacement", func(context.Context) error { return replace(created.Name) })

	// A binding allows to replace the executor as it allows to name it.
	framework.Must(works.Create(t.Context(), judgedWork("bound", executorOf(types.NamespacedName{Namespace: framework.AccountsNamespace, Name: boundAccount})), metav1.CreateOptions{}))(t)
	if err := replace("bound"); !apierrors.IsForbidden(err) {
		t.Errorf("replacement of a ManagedServiceAccount without a binding = %v, want Forbidden", err)
	}
	s.bind(boundAccount, rob.Subject)
	if err := replace("bound"); err != nil {
		t.Errorf("replacement of a ManagedServiceAccount with a binding = %v, want nil", err)
	}
}

// TestExecutorReplacementRemovesNothing checks that a user without permission to name the executor of
// a ManifestWork cannot have its objects removed from the cluster by naming another one.
func TestExecutorReplacementRemovesNothing(t *testing.T) {
	s := newFixture(t, "replaced")
	s.grant("held", configMaps)
	other := types.NamespacedName{Namespace: executorHome, Name: s.executor.Name + "-other"}
	s.grantIn(s.namespace, "other", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"other"}, Verbs: lifecycle},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}, accountSubject(other))
	work := s.workOf(s.configMap("precious", "kept"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.is("precious", "kept")

	rob := framework.NewCaller(t, s.Hub, "rob")
	rob.May(t, framework.Cluster1, rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, ResourceNames: []string{work.Name}, Verbs: []string{"get", "update", "patch"}},
		executeAs(executorName(other)))
	replace := func() error {
		_, err := rob.OCM.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), work.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"executor":%s,"workload":{"manifests":[%s]}}}`, asJSON(t, other), s.configMap("other", "of rob")), metav1.PatchOptions{})
		return err
	}
	rule := workRefused(t, "replacement", replace(), rob.Name, framework.Cluster1, s.executor)
	// A change of the administrator reaches the agent after the denied one would have.
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = rawManifests(s.configMap("precious", "still"))
	})
	s.has("precious", "still")
	s.none("other")

	rob.May(t, framework.Cluster1, rule)
	framework.Eventually(t, "rob may replace the executor with the rule in the error message", func(context.Context) error { return replace() })
	s.has("other", "of rob")
	framework.Eventually(t, "the object of the former executor is removed", func(ctx context.Context) error {
		_, err := s.value(ctx, "precious")
		return framework.IsGone(err)
	})
}

// TestManifestWorkOwnersRequireDelete checks that a user without permission to delete a ManifestWork
// cannot add an owner reference, with which the garbage collector would delete it.
func TestManifestWorkOwnersRequireDelete(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cluster := t.Context(), f.SilentCluster(t)
	works := f.OCM.WorkV1().ManifestWorks(cluster)
	owner := framework.Must(works.Create(ctx, judgedWork("owner", nil), metav1.CreateOptions{}))(t)
	owned := judgedWork("owned", executorOf(judgedExecutor))
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "work.open-cluster-management.io/v1", Kind: "ManifestWork", Name: owner.Name, UID: owner.UID}}
	framework.Must(works.Create(ctx, owned, metav1.CreateOptions{}))(t)

	rob := framework.NewCaller(t, f.Hub, "owning-rob")
	rob.May(t, cluster, writeWorks, executeAs())
	theirs := rob.OCM.WorkV1().ManifestWorks(cluster)
	absent := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: "0d1f6b5a-5b0a-4a55-9d6c-6d6d5f0d7e11"}
	moved := owned.OwnerReferences[0]
	moved.Name = "absent"
	update := func(owners []metav1.OwnerReference, options metav1.UpdateOptions) error {
		work, err := theirs.Get(ctx, owned.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		work.OwnerReferences = owners
		_, err = theirs.Update(ctx, work, options)
		return err
	}
	for way, attempt := range map[string]func() error{
		"update":                        func() error { return update(append(owned.OwnerReferences, absent), metav1.UpdateOptions{}) },
		"update that renames the owner": func() error { return update([]metav1.OwnerReference{moved}, metav1.UpdateOptions{}) },
		"merge patch": func() error {
			_, err := theirs.Patch(ctx, owned.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"absent","uid":%q}]}}`, absent.UID), metav1.PatchOptions{})
			return err
		},
		"server-side apply": func() error {
			_, err := theirs.Patch(ctx, owned.Name, types.ApplyPatchType, fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"absent","uid":%q}]}}`, owned.Name, absent.UID),
				metav1.PatchOptions{FieldManager: "rob", Force: new(true)})
			return err
		},
	} {
		err := attempt()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s = %v, want Forbidden", way, err)
			continue
		}
		if rule := ruleIn(t, err.Error()); len(rule.Verbs) != 1 || rule.Verbs[0] != "delete" || len(rule.ResourceNames) != 1 || rule.ResourceNames[0] != owned.Name {
			t.Errorf("%s: rule in the message = %v, want delete on %s", way, rule, owned.Name)
		}
	}
	// The garbage collector changes and removes references, and users may release objects.
	blocking := owned.OwnerReferences[0]
	blocking.BlockOwnerDeletion = new(true)
	for way, owners := range map[string][]metav1.OwnerReference{"the same owner": {blocking}, "no owner": nil} {
		if err := update(owners, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("update to %s = %v, want nil", way, err)
		}
	}
	rob.May(t, cluster, rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, ResourceNames: []string{owned.Name}, Verbs: []string{"delete"}})
	framework.Eventually(t, "rob may add an owner with permission to delete the ManifestWork", func(context.Context) error {
		return update(append(owned.OwnerReferences, absent), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	})
}
