package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// recorded creates the objects that an agent leaves behind for a ManifestWork of another hub: an
// AppliedManifestWork, and ConfigMaps that it owns.
func (c *cluster) recorded(hub, agentID string, objects ...string) *workv1.AppliedManifestWork {
	c.t.Helper()
	record := &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: hub + "-" + c.name, Finalizers: []string{workv1.AppliedManifestWorkFinalizer}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: hub, AgentID: agentID, ManifestWorkName: c.name},
	}
	records := c.ocm.WorkV1().AppliedManifestWorks()
	record, err := records.Create(c.t.Context(), record, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range objects {
		object := c.createConfigMap(name, "former")
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: workv1.SchemeGroupVersion.String(), Kind: "AppliedManifestWork", Name: record.Name, UID: record.UID}}
		if object, err = c.kube.CoreV1().ConfigMaps(c.name).Update(c.t.Context(), object, metav1.UpdateOptions{}); err != nil {
			c.t.Fatal(err)
		}
		record.Status.AppliedResources = append(record.Status.AppliedResources, workv1.AppliedManifestResourceMeta{
			Resource: "configmaps", Namespace: c.name, Name: name, Version: "v1", UID: string(object.UID),
		})
	}
	if record, err = records.UpdateStatus(c.t.Context(), record, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return record
}

// testPreviousHub checks that the agent removes the objects of its previous hub after the eviction
// grace period, except objects that ManifestWorks of the current hub have taken over. Objects of
// other agents stay.
func testPreviousHub(t *testing.T, c *cluster) {
	c.grace = time.Hour
	// The first agent installs the CRD of AppliedManifestWorks.
	c.run()
	first := c.create("-first", nil, configMap("first", "one"))
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	records := c.ocm.WorkV1().AppliedManifestWorks()
	former := c.recorded("former-"+c.name, c.name, "left", "taken-over")
	other := c.recorded("other-"+c.name, "another-agent", "theirs")
	c.run()
	eventually(t, "the eviction of the previous hub's AppliedManifestWork has begun", func(ctx context.Context) error {
		record, err := records.Get(ctx, former.Name, metav1.GetOptions{})
		if err == nil && record.Status.EvictionStartTime == nil {
			err = errors.New("evictionStartTime is not set")
		}
		return err
	})
	name := c.create("", nil, configMap("taken-over", "present"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("taken-over", "present")
	c.hasConfigMap("left", "former")

	c.kill()
	c.grace = 0
	c.run()
	c.noConfigMap("left")
	eventually(t, "the previous hub's AppliedManifestWork does not exist", func(ctx context.Context) error {
		if _, err := records.Get(ctx, former.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get() = %v, want NotFound", err)
		}
		return nil
	})
	if got := c.hasConfigMap("taken-over", "present"); len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID == former.UID {
		t.Errorf("ownerReferences = %v, want only the AppliedManifestWork of the current hub", got.OwnerReferences)
	}
	c.hasConfigMap("theirs", "former")
	if record, err := records.Get(t.Context(), other.Name, metav1.GetOptions{}); err != nil || record.DeletionTimestamp != nil || record.Status.EvictionStartTime != nil {
		t.Errorf("AppliedManifestWork of another agent = %v, %v, want one without deletion or eviction", record, err)
	}
	c.delete(name)
	c.gone(name)
	c.noConfigMap("taken-over")
	if _, err := records.Patch(t.Context(), other.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if err := records.Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
