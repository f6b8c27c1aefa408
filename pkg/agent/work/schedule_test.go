package work

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	configMapManifest   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}`
	namespaceManifest   = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`
	clusterRoleManifest = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"}}`
)

// testKey is the key of newWork.
var testKey = cache.ObjectName{Namespace: "cluster1", Name: "w"}

func newWork(change func(*workv1.ManifestWork), manifests ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: testKey.Namespace, Name: testKey.Name, UID: "1", Generation: 1}}
	for _, manifest := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	if change != nil {
		change(work)
	}
	return work
}

func mark(work *workv1.ManifestWork) {
	work.Annotations = map[string]string{rbacv1alpha1.DeliveredAnnotation: "cp"}
}

func actAs(work *workv1.ManifestWork) {
	work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "team", Name: "deployer"},
	}}
}

func deleting(work *workv1.ManifestWork) {
	work.DeletionTimestamp = ptr.To(metav1.Now())
}

func wroteBy(name string) func(*workv1.ManifestWork) {
	return func(work *workv1.ManifestWork) {
		work.Status.ExecutorChoice = &workv1.ExecutorChoice{SpecChangedBy: workv1.ExecutorChooser{Username: name}}
	}
}

func TestClassOfWorks(t *testing.T) {
	both := func(changes ...func(*workv1.ManifestWork)) func(*workv1.ManifestWork) {
		return func(work *workv1.ManifestWork) {
			for _, change := range changes {
				change(work)
			}
		}
	}
	for _, test := range []struct {
		name string
		work *workv1.ManifestWork
		want fair.Class
	}{
		{name: "of an executor", work: newWork(actAs, configMapManifest), want: fair.Class{Tenant: "executor/team/deployer"}},
		{name: "of a known author", work: newWork(wroteBy("eve"), configMapManifest), want: fair.Class{Tenant: "user/eve"}},
		{name: "of an unknown author", work: newWork(nil, configMapManifest), want: fair.Class{Tenant: "namespace/shop"}},
		{name: "that creates a namespace", work: newWork(nil, namespaceManifest, configMapManifest), want: fair.Class{Tenant: "namespace/shop"}},
		{name: "without namespace", work: newWork(nil, clusterRoleManifest), want: fair.Class{Tenant: "namespace/"}},
		{name: "without manifests", work: newWork(nil), want: fair.Class{Tenant: "namespace/"}},
		{name: "that is malformed", work: newWork(nil, `[`), want: fair.Class{Tenant: "namespace/"}},
		{name: "deleted", work: newWork(both(actAs, deleting), configMapManifest), want: fair.Class{Priority: true, Tenant: "executor/team/deployer"}},
		{name: "of a ClusterPermission", work: newWork(mark, clusterRoleManifest), want: fair.Class{Priority: true, Tenant: tenantNewPermission}},
		{
			name: "of a ClusterPermission, reported",
			work: newWork(both(mark, func(work *workv1.ManifestWork) {
				work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, ObservedGeneration: 1}}
			}), clusterRoleManifest),
			want: fair.Class{Priority: true, Tenant: tenantPermission},
		},
		{name: "marked, with an executor", work: newWork(both(mark, actAs), clusterRoleManifest), want: fair.Class{Tenant: "executor/team/deployer"}},
		{name: "marked, with other objects", work: newWork(mark, clusterRoleManifest, configMapManifest), want: fair.Class{Tenant: tenantPermission}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := states{}
			if got := s.class(testKey, test.work); got != test.want {
				t.Errorf("class() = %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestClassOfDeletedWorks(t *testing.T) {
	s := states{}
	if got, want := s.class(testKey, nil), (fair.Class{Priority: true, Tenant: tenantGone}); got != want {
		t.Errorf("class() of an unknown ManifestWork = %+v, want %+v", got, want)
	}
	if got, want := s.class(cache.ObjectName{Name: "r"}, nil), (fair.Class{Priority: true, Tenant: tenantFormer}); got != want {
		t.Errorf("class() of a record of another hub = %+v, want %+v", got, want)
	}
	work := newWork(actAs, configMapManifest)
	s.class(testKey, work)
	if got, want := s.class(testKey, nil), (fair.Class{Priority: true, Tenant: "executor/team/deployer"}); got != want {
		t.Errorf("class() of a ManifestWork that disappeared = %+v, want %+v", got, want)
	}
	s.forget(testKey)
	if len(s.works) != 0 {
		t.Errorf("states of a ManifestWork that does not exist = %d, want none", len(s.works))
	}
	if got, want := s.class(testKey, work), (fair.Class{Tenant: "executor/team/deployer"}); got != want {
		t.Errorf("class() of a ManifestWork that was created again = %+v, want %+v", got, want)
	}
}

func TestMarkedWorksLeaveThePriorityLane(t *testing.T) {
	for name, pass := range map[string]struct {
		result outcome
		err    error
		want   bool
	}{
		"failed":  {err: errors.New("no"), want: false},
		"partial": {result: outcome{partial: true}, want: false},
		"applied": {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := states{}
			work := newWork(mark, clusterRoleManifest)
			s.class(testKey, work)
			s.passed(testKey, pass.result, pass.err)
			if got := s.class(testKey, work).Priority; got != pass.want {
				t.Errorf("priority = %v, want %v", got, pass.want)
			}
			changed := work.DeepCopy()
			changed.Generation++
			if !s.class(testKey, changed).Priority {
				t.Error("priority after a change of the spec = false, want true")
			}
		})
	}
}

// TestDeletionEndsThePass uses the fake clock of synctest, so it takes no time.
func TestDeletionEndsThePass(t *testing.T) {
	for name, deletion := range map[string]func(cache.Indexer, *workv1.ManifestWork) error{
		"being deleted": func(works cache.Indexer, work *workv1.ManifestWork) error {
			deleted := work.DeepCopy()
			deleting(deleted)
			return works.Update(deleted)
		},
		"gone": func(works cache.Indexer, work *workv1.ManifestWork) error { return works.Delete(work) },
		"created again": func(works cache.Indexer, work *workv1.ManifestWork) error {
			again := work.DeepCopy()
			again.UID = "2"
			return works.Update(again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				work, works := newWork(actAs, configMapManifest), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				if err := works.Add(work); err != nil {
					t.Fatal(err)
				}
				c := &Controller{works: worklisters.NewManifestWorkLister(works).ManifestWorks(testKey.Namespace)}
				ctx, end := c.untilDeleted(t.Context(), work)
				defer end()
				time.Sleep(time.Minute)
				if c.deleted(work) || ctx.Err() != nil {
					t.Errorf("deleted() = %t with context error %v before the deletion, want false and none", c.deleted(work), ctx.Err())
				}
				if err := deletion(works, work); err != nil {
					t.Fatal(err)
				}
				if !c.deleted(work) || ctx.Err() != nil {
					t.Errorf("deleted() = %t with context error %v, want true and a context that has not ended yet", c.deleted(work), ctx.Err())
				}
				time.Sleep(deletedPoll + supersededGrace)
				synctest.Wait()
				if !errors.Is(context.Cause(ctx), errSuperseded) {
					t.Errorf("cause = %v, want %v", context.Cause(ctx), errSuperseded)
				}
			})
		})
	}
}

func TestTenantOfMalformedManifest(t *testing.T) {
	raw, err := json.Marshal(map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "shop", "labels": "not a map"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := tenantOf(newWork(nil, string(raw))); got != "namespace/shop" {
		t.Errorf("tenant = %s, want namespace/shop", got)
	}
}
