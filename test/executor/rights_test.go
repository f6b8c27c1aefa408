package executor

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestAgentNeedsOnlyCleanupPermissions checks an agent with the cleanup ClusterRole and without
// permission to apply objects. It applies, repairs and cleans up ManifestWorks with an executor. It
// cannot apply a ManifestWork without an executor.
func TestAgentNeedsOnlyCleanupPermissions(t *testing.T) {
	s := newFixture(t, "cleanup")
	managed := s.Members[0]
	const applies, cleansUp = "open-cluster-management:agent:apply", "open-cluster-management:agent:cleanup"
	grants := filepath.Join(localhub.Root(), "artifacts", "agent", "managed")
	role := func(dir, name string) []*unstructured.Unstructured {
		t.Helper()
		all := framework.Must(localhub.ReadManifests(dir))(t)
		all = slices.DeleteFunc(all, func(object *unstructured.Unstructured) bool { return object.GetName() != name })
		if len(all) != 2 {
			t.Fatalf("manifests with the name %s in %s = %d, want 2", name, dir, len(all))
		}
		return all
	}
	if err := managed.Apply(t.Context(), role(filepath.Join(grants, "optional"), cleansUp)...); err != nil {
		t.Fatal(err)
	}
	usual := role(grants, applies)
	bindings := s.ManagedClient.RbacV1().ClusterRoleBindings()
	s.atEnd(func(ctx context.Context) error {
		return errors.Join(managed.Apply(ctx, usual...), bindings.Delete(ctx, cleansUp, metav1.DeleteOptions{}))
	})
	if err := bindings.Delete(t.Context(), applies, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Agent.Start would grant the permissions again. Restart only restarts the process.
	if err := managed.Agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	s.grant("held", configMaps)
	work, own := s.workOf(s.configMap("object", "first")), s.workOf(s.configMap("own", "first"))
	own.Name, own.Spec.Executor = s.namespace+"-own", nil
	s.create(work, own)
	s.reports(work.Name, metav1.ConditionTrue)
	s.set("object", "drifted")
	s.has("object", "first")
	if message := s.said(s.reports(own.Name, metav1.ConditionFalse), 0); !strings.Contains(message, "forbidden") {
		t.Errorf("message of the ManifestWork without an executor = %q, want \"forbidden\" in it", message)
	}
	s.none("own")
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = rawManifests(s.configMap("next", "first"))
	})
	s.has("next", "first")
	framework.Eventually(t, "the ConfigMap that was removed from the ManifestWork does not exist", func(ctx context.Context) error {
		_, err := s.value(ctx, "object")
		return framework.IsGone(err)
	})
	s.gone(work.Name)
	s.none("next")
}

// TestExecutorRequiresImpersonation checks that an agent without permission to impersonate reports
// this, and writes nothing with its own permissions.
func TestExecutorRequiresImpersonation(t *testing.T) {
	s := newFixture(t, "impersonation")
	s.grant("held", configMaps)
	bindings := s.ManagedClient.RbacV1().ClusterRoleBindings()
	const name = "open-cluster-management:agent:executor"
	binding := framework.Must(bindings.Get(t.Context(), name, metav1.GetOptions{}))(t)
	role := framework.Must(s.ManagedClient.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}))(t)
	limited := role.DeepCopy()
	limited.Rules = slices.DeleteFunc(limited.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Verbs, "impersonate") })
	if len(limited.Rules) == len(role.Rules) || len(binding.Subjects) == 0 {
		t.Fatalf("ClusterRole %s: rules = %v and subjects of the binding = %v, want a rule for impersonate and a subject", name, role.Rules, binding.Subjects)
	}
	roles := s.ManagedClient.RbacV1().ClusterRoles()
	if _, err := roles.Update(t.Context(), limited, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	restore := func(ctx context.Context) error {
		current, err := roles.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Rules = role.Rules
		_, err = roles.Update(ctx, current, metav1.UpdateOptions{})
		return err
	}
	s.atEnd(restore)
	// The authorizer of the cluster notices the change after a short delay.
	s.deniedTo(agentOnManaged, nil, authorizationv1.ResourceAttributes{
		Verb: "impersonate", Version: "v1", Resource: "serviceaccounts", Namespace: s.executor.Namespace, Name: s.executor.Name,
	})
	position := s.now()
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	message := s.said(s.reports(work.Name, metav1.ConditionFalse), 0)
	for _, part := range []string{"the agent cannot impersonate the executor", "verbs: [impersonate]}"} {
		if !strings.Contains(message, part) {
			t.Errorf("message of Applied = %q, want %q in it", message, part)
		}
	}
	s.none("object")
	// The audit log contains a request with a denied impersonation as a request of the agent.
	s.no("successful requests for ConfigMaps", s.since(position).of("configmaps", s.namespace).done())

	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.has("object", "first")
	if available := meta.FindStatusCondition(s.reports(work.Name, metav1.ConditionTrue).Status.Conditions, workv1.WorkAvailable); available == nil || available.Status != metav1.ConditionTrue {
		t.Errorf("Available = %v, want True", available)
	}
}
