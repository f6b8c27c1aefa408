package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// quotaBytes is the quota of each resource that has one, in each namespace. It is more than any other test needs.
const quotaBytes = 512 << 10

// quotaOfBytes returns the flag that sets quotaBytes.
func quotaOfBytes() string {
	var limits []string
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		if row.Quota != (quota.Limits{}) {
			limits = append(limits, fmt.Sprintf("%s=%d", row.Name, quotaBytes))
		}
	}
	return "--namespace-quota-bytes=" + strings.Join(limits, ",")
}

// TestDeletedObjectsInQuota checks that objects with a finalizer cannot exceed a quota after their deletion, and that
// finalizers can be removed in a full namespace.
func TestDeletedObjectsInQuota(t *testing.T) {
	namespaced := slices.DeleteFunc(kinds(), func(k kind) bool { return k.ClusterScoped })
	forEachOf(t, namespaced, func(t *testing.T, p *place) {
		const finalizer, grown = "conformance.open-cluster-management.io/test", 15 << 10
		growth := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": strings.Repeat("a", grown)}}}
		var names []string
		for range quotaBytes/grown + 1 {
			object := p.object(t)
			object.SetFinalizers([]string{finalizer, finalizer + "-2"})
			created, err := p.client.Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, created.GetName())
			if err := p.client.Delete(t.Context(), created.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var refused error
		for i := 0; i < len(names) && refused == nil; i++ {
			_, refused = p.tryMerge(t, names[i], growth)
		}
		if !apierrors.IsForbidden(refused) || !refusal.IsQuotaExceeded(refused) {
			t.Errorf("growth of %d deleted objects by %d bytes each: error = %v, want 403 with the cause %s", len(names), grown, refused, refusal.QuotaExceeded)
		}
		for _, name := range names {
			for _, finalizers := range [][]any{{finalizer}, {}} {
				if _, err := p.tryMerge(t, name, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}); err != nil {
					t.Fatalf("removal of a finalizer of %s over the quota: error = %v, want none", name, err)
				}
			}
		}
	})
}
