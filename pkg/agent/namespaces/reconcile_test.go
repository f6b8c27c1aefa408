package namespaces

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

func namespace(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "n", Labels: map[string]string{"team": "a"}},
	}
	if change != nil {
		change(object)
	}
	return object
}

func report(change func(*v1alpha1.ClusterNamespace)) *v1alpha1.ClusterNamespace {
	object := &v1alpha1.ClusterNamespace{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "shop", UID: "r", Labels: map[string]string{"team": "a"}},
		Spec:       v1alpha1.ClusterNamespaceSpec{NamespaceUID: "n"},
	}
	if change != nil {
		change(object)
	}
	return object
}

// newController returns a controller whose informers contain the given objects. The objects may be
// nil.
func newController(t *testing.T, live *metav1.PartialObjectMetadata, seen *v1alpha1.ClusterNamespace) (*Controller, *fake.Clientset) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewSimpleClientset()
	c, err := New(Config{ClusterName: cluster, Hub: hub, Managed: metadatafake.NewSimpleMetadataClient(scheme)})
	if err != nil {
		t.Fatal(err)
	}
	if live != nil {
		if err := c.namespaceInformer.GetStore().Add(live); err != nil {
			t.Fatal(err)
		}
	}
	if seen != nil {
		if err := errors.Join(c.reportInformer.GetStore().Add(seen), hub.Tracker().Add(seen)); err != nil {
			t.Fatal(err)
		}
	}
	return c, hub
}

func TestReconcile(t *testing.T) {
	terminating := namespace(func(n *metav1.PartialObjectMetadata) { n.DeletionTimestamp = new(metav1.Now()) })
	for name, test := range map[string]struct {
		live *metav1.PartialObjectMetadata
		seen *v1alpha1.ClusterNamespace
		// want are the writes. annotations are the annotations of the report after the pass.
		want        []string
		annotations map[string]string
	}{
		"no objects":            {},
		"new":                   {live: namespace(nil), want: []string{"create"}},
		"up to date":            {live: namespace(nil), seen: report(nil)},
		"other labels":          {live: namespace(nil), seen: report(func(r *v1alpha1.ClusterNamespace) { r.Labels = map[string]string{"team": "b"} }), want: []string{"update"}},
		"label removed":         {live: namespace(func(n *metav1.PartialObjectMetadata) { n.Labels = nil }), seen: report(nil), want: []string{"update"}},
		"created again":         {live: namespace(func(n *metav1.PartialObjectMetadata) { n.UID = "other" }), seen: report(nil), want: []string{"update"}},
		"annotations are kept":  {live: namespace(nil), seen: report(func(r *v1alpha1.ClusterNamespace) { r.Labels, r.Annotations = nil, map[string]string{"x": "y"} }), want: []string{"update"}, annotations: map[string]string{"x": "y"}},
		"deleted":               {seen: report(nil), want: []string{"delete"}},
		"terminating":           {live: terminating, seen: report(nil), want: []string{"delete"}},
		"terminating, unknown":  {live: terminating},
		"report is terminating": {seen: report(func(r *v1alpha1.ClusterNamespace) { r.DeletionTimestamp = new(metav1.Now()) })},
	} {
		t.Run(name, func(t *testing.T) {
			c, hub := newController(t, test.live, test.seen)
			if _, err := c.pass(t.Context(), cache.ObjectName{Name: "shop"}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, action := range hub.Actions() {
				got = append(got, action.GetVerb())
				if deletion, ok := action.(clienttesting.DeleteAction); ok {
					if uid := deletion.GetDeleteOptions().Preconditions.UID; *uid != "r" {
						t.Errorf("deletion of UID %s, want r", *uid)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("writes (-want +got):\n%s", diff)
			}
			if len(got) == 0 || got[0] == "delete" {
				return
			}
			after, err := hub.RbacV1alpha1().ClusterNamespaces(cluster).Get(t.Context(), "shop", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if after.Spec.NamespaceUID != test.live.UID || !maps.Equal(after.Labels, test.live.Labels) || !maps.Equal(after.Annotations, test.annotations) {
				t.Errorf("report = UID %s, labels %v, annotations %v, want those of %+v and annotations %v", after.Spec.NamespaceUID, after.Labels, after.Annotations, test.live.ObjectMeta, test.annotations)
			}
		})
	}
}

func TestReconcileFails(t *testing.T) {
	for verb, test := range map[string]struct {
		live *metav1.PartialObjectMetadata
		seen *v1alpha1.ClusterNamespace
		fail error
		want string
	}{
		"create": {live: namespace(nil), fail: errors.New("no"), want: "create ClusterNamespace: no"},
		"update": {live: namespace(nil), seen: report(func(r *v1alpha1.ClusterNamespace) { r.Labels = nil }), fail: errors.New("no"), want: "update ClusterNamespace: no"},
		"delete": {seen: report(nil), fail: errors.New("no"), want: "delete ClusterNamespace: no"},
	} {
		c, hub := newController(t, test.live, test.seen)
		hub.PrependReactor(verb, "clusternamespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.fail })
		if _, err := c.pass(t.Context(), cache.ObjectName{Name: "shop"}); err == nil || err.Error() != test.want {
			t.Errorf("%s: pass() = %v, want %s", verb, err, test.want)
		}
	}
	c, hub := newController(t, nil, report(nil))
	hub.PrependReactor("delete", "clusternamespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(v1alpha1.Resource("clusternamespaces"), "shop")
	})
	if _, err := c.pass(t.Context(), cache.ObjectName{Name: "shop"}); err != nil {
		t.Errorf("pass() with a deleted report = %v, want nil", err)
	}
}

func TestRetry(t *testing.T) {
	quota := apierrors.NewForbidden(v1alpha1.Resource("clusternamespaces"), "", errors.New("exceeded quota"))
	quota.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: refusal.QuotaExceeded}}
	invalid := apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("ClusterNamespace").GroupKind(), "shop", nil)
	for name, test := range map[string]struct {
		// errs are the errors of namespaces 0, 1 and so on.
		errs []error
		// least and most bound the delay of the last namespace.
		least, most time.Duration
	}{
		"backoff":                 {[]error{errors.New("no")}, time.Second, time.Second},
		"invalid":                 {[]error{invalid}, invalidRetry * 2 / 3, invalidRetry},
		"quota, first":            {[]error{quota}, fullRetry * 2 / 3, fullRetry},
		"quota, second":           {[]error{quota, quota}, fullRetry * 2 / 3, fullRetry},
		"other error, then quota": {[]error{errors.New("no"), fmt.Errorf("create: %w", quota)}, fullRetry * 2 / 3, fullRetry},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newController(t, nil, nil)
			var got time.Duration
			for i, err := range test.errs {
				got = c.retry(cache.ObjectName{Name: fmt.Sprint(i)}, err, time.Second)
			}
			if got < test.least || got > test.most {
				t.Errorf("retry() = %s, want %s to %s", got, test.least, test.most)
			}
		})
	}
}

func TestUnreportedFieldsAreDropped(t *testing.T) {
	object := namespace(func(n *metav1.PartialObjectMetadata) {
		n.Annotations = map[string]string{"large": strings.Repeat("x", 1000)}
		n.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	})
	got, err := dropUnreported(object)
	if err != nil {
		t.Fatal(err)
	}
	kept := got.(*metav1.PartialObjectMetadata)
	if kept.Annotations != nil || kept.ManagedFields != nil || kept.UID != types.UID("n") || kept.Labels["team"] != "a" {
		t.Errorf("dropUnreported() = %+v, want name, UID and labels only", kept.ObjectMeta)
	}
}
