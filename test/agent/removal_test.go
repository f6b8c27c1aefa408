package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func testManifestRemoved(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("stays", "one"), configMap("leaves", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.replace(name, configMap("stays", "two"), configMap("comes", "two"))
	c.hasConfigMap("stays", "two")
	c.hasConfigMap("comes", "two")
	c.noConfigMap("leaves")
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if len(work.Status.ResourceStatus.Manifests) != 2 {
		t.Errorf("manifests in the status = %d, want 2", len(work.Status.ResourceStatus.Manifests))
	}
}

func testFieldRemoved(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {l1: x, l2: x}}, data: {key: one, former: x}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	patch := []byte(`{"metadata":{"labels":{"other":"x"}},"data":{"other":"x"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// A restarted agent must also know which fields the previous manifest contained.
	c.kill()
	c.replace(name, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {l1: x}}, data: {key: two}}`)
	c.run()
	got := c.hasConfigMap("a", "two")
	if _, there := got.Data["former"]; there || got.Data["other"] != "x" {
		t.Errorf("data = %v, want former removed and other=x kept", got.Data)
	}
	if _, there := got.Labels["l2"]; there || got.Labels["l1"] != "x" || got.Labels["other"] != "x" {
		t.Errorf("labels = %v, want l2 removed, and l1=x and other=x kept", got.Labels)
	}
}

func testAdopted(t *testing.T, c *cluster) {
	before := c.createConfigMap("a", "mine")
	c.run()
	name := c.create("", nil, configMap("a", "work"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("a", "work")
	c.delete(name)
	c.gone(name)
	after, err := c.configMap("a")
	if err != nil {
		t.Fatalf("Get(ConfigMap a) = %v, want nil for an object that existed before the ManifestWork", err)
	}
	if after.UID != before.UID || len(after.OwnerReferences) != 0 || len(after.Annotations) != 0 {
		t.Errorf("metadata = %+v, want UID %s, no owners and no annotations", after.ObjectMeta, before.UID)
	}
}

func testOrphan(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
	if got, err := c.configMap("a"); err != nil || len(got.OwnerReferences) != 0 {
		t.Errorf("Get(ConfigMap a) = %v, %v, want a ConfigMap without owners", got, err)
	}
}

func testSelectivelyOrphan(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("stays", "one"), configMap("goes", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
				{Resource: "configmaps", Namespace: new(c.name), Name: "stays"},
			}},
		}
	})
	c.delete(name)
	c.gone(name)
	c.noConfigMap("goes")
	if got, err := c.configMap("stays"); err != nil || len(got.OwnerReferences) != 0 {
		t.Errorf("Get(ConfigMap stays) = %v, %v, want a ConfigMap without owners", got, err)
	}
}

func testShared(t *testing.T, c *cluster) {
	c.run()
	first := c.create("-1", nil, configMap("a", "one"))
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	second := c.create("-2", nil, configMap("a", "one"))
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(first)
	c.gone(first)
	if got := c.hasConfigMap("a", "one"); len(got.OwnerReferences) != 1 {
		t.Errorf("ownerReferences = %v, want one", got.OwnerReferences)
	}
	c.delete(second)
	c.gone(second)
	c.noConfigMap("a")
}

// testReplacedByOther checks that the agent does not delete an object that another client created
// under the same name while the agent was stopped.
func testReplacedByOther(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	if err := c.kube.CoreV1().ConfigMaps(c.name).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other := c.createConfigMap("a", "other")
	c.delete(name)
	c.run()
	c.gone(name)
	if got, err := c.configMap("a"); err != nil || got.UID != other.UID {
		t.Errorf("Get(ConfigMap a) = UID %s, %v, want UID %s", got.UID, err, other.UID)
	}
}

func testDeletedWhileDown(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	c.delete(name)
	c.run()
	c.gone(name)
	c.noConfigMap("a")
}

func testFinalizerRemoved(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.delete(name)
	c.run()
	c.noConfigMap("a")
	eventually(t, "the AppliedManifestWork does not exist", func(context.Context) error {
		if _, err := c.record(name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get() = %v, want NotFound", err)
		}
		return nil
	})
}

// testWrongClusterName checks that an agent with a wrong cluster name does not remove objects that
// were applied under the right name, even if a ManifestWork of the same name is created and deleted.
func testWrongClusterName(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	other := c.fixture.named(t, c.name+"-wrong")
	other.run()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	work.Spec.Workload.Manifests = []workv1.Manifest{c.manifest(configMap("b", "one"))}
	if _, err := other.works().Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	other.delete(name)
	eventually(t, "the ManifestWork of the wrong cluster does not exist", func(ctx context.Context) error {
		if _, err := other.works().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get() = %v, want NotFound", err)
		}
		return nil
	})
	c.hasConfigMap("a", "one")
	if record, err := c.record(name); err != nil || record.DeletionTimestamp != nil {
		t.Errorf("Get(AppliedManifestWork) = %v, %v, want one without deletionTimestamp", record, err)
	}
}

// testHubDataLoss checks that applied objects stay for the eviction grace period if the hub loses its
// data. If the ManifestWork is created again, the agent updates them and ends the eviction.
func testHubDataLoss(t *testing.T, c *cluster) {
	c.grace = time.Hour
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.delete(name)
	c.run()
	evicting := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("evictionStartTime of the AppliedManifestWork is set: %t", want), func(context.Context) error {
			record, err := c.record(name)
			if err != nil {
				return err
			}
			if started := record.Status.EvictionStartTime != nil; started != want {
				return fmt.Errorf("evictionStartTime is set: %t, want %t", started, want)
			}
			return nil
		})
	}
	evicting(true)
	c.hasConfigMap("a", "one")
	c.create("", nil, configMap("a", "two"))
	c.hasConfigMap("a", "two")
	evicting(false)
}
