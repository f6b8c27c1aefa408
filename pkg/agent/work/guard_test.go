package work

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
)

// TestBeginGuard checks that UIDs that were recorded before the ManifestWork was guarded are forgotten:
// they may be those of adopted objects.
func TestBeginGuard(t *testing.T) {
	delivers := map[string]string{rbacv1alpha1.DeliveredAnnotation: "cp"}
	for name, test := range map[string]struct {
		work, record map[string]string
		want         string
	}{
		"not guarded":     {want: "u"},
		"guarded now":     {work: delivers},
		"guarded already": {work: delivers, record: map[string]string{decide.GuardedAnnotation: "true"}, want: "u"},
	} {
		record := &workv1.AppliedManifestWork{
			ObjectMeta: metav1.ObjectMeta{Name: "r", Annotations: test.record},
			Status:     workv1.AppliedManifestWorkStatus{AppliedResources: []workv1.AppliedManifestResourceMeta{{Name: "a", UID: "u"}}},
		}
		c := &Controller{Config: Config{Managed: fake.NewSimpleClientset(record)}}
		c.recordCache = newestOf(externalversions.NewSharedInformerFactory(c.Managed, 0).Work().V1().AppliedManifestWorks().Informer())
		st := &workState{items: map[decide.ObjectID]*itemState{{Name: "a"}: {State: apply.State{UID: "u"}}}}
		_, err := c.beginGuard(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: test.work}}, st, record)
		if err != nil {
			t.Errorf("%s: beginGuard() = %v, want nil", name, err)
			continue
		}
		stored, err := c.recordClient().Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := &pass{Controller: c, record: stored}
		it := &decide.Item{Name: "a"}
		state := st.items[it.ID()]
		if state == nil {
			state = &itemState{}
		}
		if got := p.recordedUID(it, state); string(got) != test.want {
			t.Errorf("%s: recordedUID() after beginGuard() = %q, want %q", name, got, test.want)
		}
	}
	// The record contains the UID only after the pass in which the object was created.
	p := &pass{record: &workv1.AppliedManifestWork{}}
	if got := p.recordedUID(&decide.Item{Name: "a"}, &itemState{State: apply.State{UID: "u"}}); got != "u" {
		t.Errorf("recordedUID() of an object that was just created = %q, want u", got)
	}
}
