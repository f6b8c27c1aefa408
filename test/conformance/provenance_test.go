package conformance

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/provenance"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// forged is in each value that a caller writes in place of the server.
const forged = "forged"

// forgedKeys are the values of keys that have a form of their own.
var forgedKeys = map[string]string{"open-cluster-management.io/hub-epoch": "7/forged"}

// forgedStatus are the values of fields of a status.
var forgedStatus = map[string]any{
	"acceptance":        map[string]any{"accepted": true, "everAccepted": true, "decidedBy": forged, "decidedAt": "2026-01-02T03:04:05Z"},
	"managedNamespaces": []any{map[string]any{"name": forged, "clusterSet": forged}},
	"executorChoice":    map[string]any{"chosenBy": map[string]any{"username": forged}, "chosenAt": "2026-01-02T03:04:05Z"},
	"approval":          map[string]any{"approved": map[string]any{"generation": int64(1), "approvedBy": forged, "approvedAt": "2026-01-02T03:04:05Z"}},
	"authors":           []any{map[string]any{"username": forged}},
}

// serverFacts returns what only the server writes in objects of the kind.
func (k kind) serverFacts() []provenance.Fact {
	return slices.DeleteFunc(slices.Clone(provenance.Facts), func(fact provenance.Fact) bool {
		return fact.Kind != k.Versions[0].WithKind(k.Kind).GroupKind() || fact.Writer != provenance.Server && fact.Writer != provenance.Import
	})
}

// forge returns a merge patch with a forged value for each fact.
func forge(t *testing.T, facts []provenance.Fact) map[string]any {
	t.Helper()
	labels, annotations, status, conditions := map[string]any{}, map[string]any{}, map[string]any{}, []any{}
	for _, fact := range facts {
		value, special := forgedKeys[fact.Key]
		if !special {
			value = forged
		}
		switch fact.Part {
		case provenance.Label:
			labels[fact.Key] = value
		case provenance.Annotation:
			annotations[fact.Key] = value
		case provenance.Condition:
			conditions = append(conditions, map[string]any{
				"type": fact.Key, "status": "True", "reason": "Forged", "message": forged, "lastTransitionTime": "2026-01-02T03:04:05Z",
			})
		case provenance.Status:
			value, known := forgedStatus[fact.Key]
			if !known {
				t.Fatalf("forgedStatus has no value for %s", fact.Key)
			}
			status[fact.Key] = value
		}
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}, "status": status}
}

// overlay returns a copy of an object with the values of a patch.
func overlay(object *unstructured.Unstructured, patch map[string]any) *unstructured.Unstructured {
	changed := object.DeepCopy()
	labels, annotations := changed.GetLabels(), changed.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	metadata := patch["metadata"].(map[string]any)
	for key, value := range metadata["labels"].(map[string]any) {
		labels[key] = value.(string)
	}
	for key, value := range metadata["annotations"].(map[string]any) {
		annotations[key] = value.(string)
	}
	changed.SetLabels(labels)
	changed.SetAnnotations(annotations)
	status, _ := changed.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	for key, value := range patch["status"].(map[string]any) {
		status[key] = value
	}
	changed.Object["status"] = status
	return changed
}

// wantUnforged checks that an object contains no forged value of a fact. Its managed fields name no field of them either.
func (p *place) wantUnforged(t *testing.T, write, name string, facts []provenance.Fact) {
	t.Helper()
	object := p.get(t, name)
	for _, fact := range facts {
		var got any
		switch fact.Part {
		case provenance.Label:
			got = object.GetLabels()[fact.Key]
		case provenance.Annotation:
			got = object.GetAnnotations()[fact.Key]
		case provenance.Status:
			got, _, _ = unstructured.NestedFieldNoCopy(object.Object, "status", fact.Key)
		case provenance.Condition:
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			for _, condition := range conditions {
				if condition, ok := condition.(map[string]any); ok && condition["type"] == fact.Key {
					got = condition
				}
			}
		}
		content, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ToLower(string(content)), forged) {
			t.Errorf("%s: %s %s = %s, want no value that a caller has written", write, fact.Part, fact.Key, content)
		}
	}
}

// TestFactsOfServer attempts to write each value that only the server may write, in all ways that the API offers: as an
// administrator, as a tenant with all permissions for the resource, as the agent of the cluster, and with the bootstrap token.
func TestFactsOfServer(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "facts-tenant"}}
	for _, k := range kinds() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{k.version.Group}, Resources: []string{k.Name, k.Name + "/status"}, Verbs: []string{"*"}})
	}
	if _, err := shared.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role.Name}},
	}
	if _, err := shared.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var protected []kind
	for _, k := range kinds() {
		if len(k.serverFacts()) > 0 {
			protected = append(protected, k)
		}
	}
	if len(protected) < 5 {
		t.Fatalf("kinds with facts of the server = %d, want those of the table", len(protected))
	}
	for name, as := range map[string]func(cluster string) rest.ImpersonationConfig{
		"administrator": func(string) rest.ImpersonationConfig { return rest.ImpersonationConfig{} },
		"tenant": func(string) rest.ImpersonationConfig {
			return rest.ImpersonationConfig{UserName: role.Name, Groups: []string{"system:authenticated"}}
		},
		"agent": func(cluster string) rest.ImpersonationConfig {
			return rest.ImpersonationConfig{
				UserName: clusterv1.AgentGroups(cluster)[0] + ":facts", Groups: append(clusterv1.AgentGroups(cluster), "system:authenticated"),
			}
		},
		"bootstrap": func(string) rest.ImpersonationConfig {
			return rest.ImpersonationConfig{
				UserName: "system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management", "system:authenticated"},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachOf(t, protected, func(t *testing.T, p *place) { p.forgeAll(t, name, as) })
		})
	}
}

func (p *place) forgeAll(t *testing.T, writer string, as func(cluster string) rest.ImpersonationConfig) {
	facts, object := p.serverFacts(), p.object(t)
	patch := forge(t, facts)
	cluster := p.namespace
	if p.ClusterScoped {
		cluster = object.GetName()
	}
	config := rest.CopyConfig(p.hub.admin)
	config.Impersonate = as(cluster)
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client := all.Resource(p.gvr()).Namespace(p.namespace)
	allowed := 0
	attempt := func(write string, err error) {
		t.Helper()
		if err == nil {
			allowed++
		} else if !apierrors.IsForbidden(err) {
			t.Errorf("%s: error = %v, want none or 403", write, err)
		}
		p.wantUnforged(t, write, object.GetName(), facts)
	}

	_, err = client.Create(t.Context(), overlay(object, patch), metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		if _, err := p.client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	attempt("create", err)
	if writer == "agent" {
		p.acceptCluster(t, cluster, all)
	}
	content, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	applied := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		object = overlay(object, patch)
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetUID("")
		return object
	}
	for _, subresources := range [][]string{nil, {"status"}} {
		if len(subresources) > 0 && !p.HasStatus() {
			continue
		}
		on := strings.Join(subresources, "")
		attempt("update "+on, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			_, err := client.Update(t.Context(), overlay(p.get(t, object.GetName()), patch), metav1.UpdateOptions{}, subresources...)
			return err
		}))
		_, err = client.Patch(t.Context(), object.GetName(), types.MergePatchType, content, metav1.PatchOptions{}, subresources...)
		attempt("merge patch "+on, err)
		_, err = client.Apply(t.Context(), object.GetName(), applied(p.get(t, object.GetName())), metav1.ApplyOptions{FieldManager: forged, Force: true}, subresources...)
		attempt("apply "+on, err)
	}
	// Otherwise the test would only show that the caller has no permissions.
	if want := map[string]int{"administrator": 4, "tenant": 4}[writer]; allowed < want || p.Kind == "ManagedCluster" && allowed == 0 {
		t.Errorf("allowed writes of the %s = %d, want at least %d", writer, allowed, max(want, 1))
	}
}

// acceptCluster accepts a cluster, and waits until the agent of the cluster has access.
func (p *place) acceptCluster(t *testing.T, cluster string, agent dynamic.Interface) {
	t.Helper()
	clusters := clusterv1.SchemeGroupVersion.WithResource("managedclusters")
	accept := []byte(`{"spec":{"hubAcceptsClient":true}}`)
	if _, err := p.hub.dynamic.Resource(clusters).Patch(t.Context(), cluster, types.MergePatchType, accept, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "access of the agent", func(ctx context.Context) error {
		_, err := agent.Resource(clusters).Patch(ctx, cluster, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		return err
	})
}
