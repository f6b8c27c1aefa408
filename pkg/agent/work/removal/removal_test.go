package removal

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func record(name string) *workv1.AppliedManifestWork {
	return &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

func TestRemove(t *testing.T) {
	adopted := map[string]string{decide.AdoptedAnnotation: "true"}
	for name, test := range map[string]struct {
		// owners are the AppliedManifestWorks that own the object. The record "lost" does not
		// exist.
		owners      []string
		annotations map[string]string
		recorded    types.UID
		guarded     bool
		options     Options
		deleted     bool
		// left are the owners after the removal. adopted is true if the object still has the
		// annotation.
		left    []string
		adopted bool
	}{
		"owned":                              {owners: []string{"ours"}, deleted: true},
		"recorded":                           {recorded: "u", deleted: true},
		"recorded, only owned":               {recorded: "u", options: Options{OwnedOnly: true}},
		"another object":                     {recorded: "other"},
		"shared":                             {owners: []string{"ours", "theirs"}, left: []string{"theirs"}},
		"shared with a lost record":          {owners: []string{"ours", "lost"}, deleted: true},
		"adopted":                            {owners: []string{"ours"}, annotations: adopted},
		"adopted and shared":                 {owners: []string{"ours", "theirs"}, annotations: adopted, left: []string{"theirs"}, adopted: true},
		"orphan":                             {owners: []string{"ours"}, options: Options{Orphan: func(decide.ObjectID) bool { return true }}},
		"guarded, annotated by its subject":  {owners: []string{"ours"}, annotations: adopted, recorded: "u", guarded: true, deleted: true},
		"guarded, released by its subject":   {annotations: adopted, recorded: "u", guarded: true, options: Options{OwnedOnly: true}, deleted: true},
		"guarded, given away by its subject": {owners: []string{"ours", "theirs"}, recorded: "u", guarded: true, deleted: true},
		"guarded and shared":                 {owners: []string{"ours", "sharers"}, recorded: "u", guarded: true, left: []string{"sharers"}},
		"guarded, not created":               {owners: []string{"ours"}, annotations: adopted, guarded: true},
		"guarded, another object":            {annotations: adopted, recorded: "other", guarded: true, adopted: true},
		"guarded orphan":                     {owners: []string{"ours"}, recorded: "u", guarded: true, options: Options{Orphan: func(decide.ObjectID) bool { return true }}},
		"guarded orphan, released":           {recorded: "u", guarded: true, options: Options{OwnedOnly: true, Orphan: func(decide.ObjectID) bool { return true }}},
		"orphan of another ManifestWork":     {owners: []string{"theirs"}, options: Options{Orphan: func(decide.ObjectID) bool { return true }}, left: []string{"theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			object := &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u", Annotations: test.annotations},
			}
			for _, owner := range test.owners {
				decide.SetOwners(object, decide.OwnerRef(record(owner)))
			}
			ours, sharers := record("ours"), record("sharers")
			if test.guarded {
				ours.Annotations = map[string]string{decide.GuardedAnnotation: "true"}
			}
			sharers.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{{Version: "v1", Resource: "configmaps", Namespace: "n", Name: "a"}}
			objects := metadatafake.NewSimpleMetadataClient(scheme, object)
			r := &Remover{
				Objects: objects, Records: fake.NewSimpleClientset(ours, record("theirs"), sharers).WorkV1().AppliedManifestWorks(),
				Served: func(_ context.Context, gvr schema.GroupVersionResource) (schema.GroupVersionResource, error) {
					return gvr, nil
				},
				Now: time.Now,
			}
			entry := workv1.AppliedManifestResourceMeta{Version: "v1", Resource: "configmaps", Namespace: "n", Name: "a", UID: string(test.recorded)}
			remaining, err := r.Remove(t.Context(), ours, []workv1.AppliedManifestResourceMeta{entry}, test.options)
			if err != nil || len(remaining) > 0 {
				t.Fatalf("Remove() = %v, %v, want no remaining entries", remaining, err)
			}
			after, err := objects.Resource(configMaps).Namespace("n").Get(t.Context(), "a", metav1.GetOptions{})
			if deleted := apierrors.IsNotFound(err); deleted != test.deleted {
				t.Fatalf("object deleted = %t (%v), want %t", deleted, err, test.deleted)
			}
			if test.deleted {
				return
			}
			owners := decide.RecordOwners(after)
			if len(owners) != len(test.left) || len(owners) > 0 && owners[0].Name != test.left[0] {
				t.Errorf("owners of the object = %v, want %v", owners, test.left)
			}
			if _, marked := after.Annotations[decide.AdoptedAnnotation]; marked != test.adopted {
				t.Errorf("object has the adopted annotation = %t, want %t", marked, test.adopted)
			}
		})
	}
}

// TestFinalizersOfCustomResources checks that the controllers of a ManifestWork can remove the finalizers of
// its custom resources, but that an object which is never deleted does not keep the others.
func TestFinalizersOfCustomResources(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for name, test := range map[string]struct {
		after   time.Duration
		without string
		left    int
	}{
		"soon":                    {after: finalizerPatience / 2, left: 3},
		"later":                   {after: finalizerPatience + time.Second, left: 1},
		"without Pods":            {after: finalizerPatience / 2, without: "deployments", left: 1},
		"without custom resource": {after: finalizerPatience / 2, without: "widgets"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			ours := record("ours")
			var objects []runtime.Object
			var entries []workv1.AppliedManifestResourceMeta
			for _, kind := range []struct{ group, kind, resource string }{{"example.com", "Widget", "widgets"}, {"", "ServiceAccount", "serviceaccounts"}, {"apps", "Deployment", "deployments"}} {
				if kind.resource == test.without {
					continue
				}
				object := &metav1.PartialObjectMetadata{
					TypeMeta:   metav1.TypeMeta{APIVersion: schema.GroupVersion{Group: kind.group, Version: "v1"}.String(), Kind: kind.kind},
					ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: types.UID(kind.kind)},
				}
				if kind.kind == "Widget" {
					object.DeletionTimestamp, object.Finalizers = &metav1.Time{Time: start}, []string{"example.com/x"}
				}
				decide.SetOwners(object, decide.OwnerRef(ours))
				objects = append(objects, object)
				entries = append(entries, workv1.AppliedManifestResourceMeta{Group: kind.group, Version: "v1", Resource: kind.resource, Namespace: "n", Name: "a"})
			}
			r := &Remover{
				Objects: metadatafake.NewSimpleMetadataClient(scheme, objects...), Records: fake.NewSimpleClientset(ours).WorkV1().AppliedManifestWorks(),
				Served: func(_ context.Context, gvr schema.GroupVersionResource) (schema.GroupVersionResource, error) {
					return gvr, nil
				},
				Now: func() time.Time { return start.Add(test.after) },
			}
			remaining, err := r.Remove(t.Context(), ours, entries, Options{})
			if err != nil || len(remaining) != test.left {
				t.Errorf("Remove() = %v, %v, want %d remaining entries", remaining, err, test.left)
			}
		})
	}
}
