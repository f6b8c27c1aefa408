package migrate

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestFreezeSecretsWaits checks that the copy does not begin before the hub refuses to delete the Secrets of accounts.
func TestFreezeSecretsWaits(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secret := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "account", Labels: map[string]string{accountLabel: "true"}},
	}
	synctest.Test(t, func(t *testing.T) {
		caller := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		answers := []error{nil, errors.New("the hub does not respond"), errors.New(freezeMessage)}
		caller.PrependReactor("delete", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if options := action.(clienttesting.DeleteActionImpl).DeleteOptions; !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) {
				t.Errorf("options of the deletion = %+v, want a dry run", options)
			}
			answer := answers[0]
			answers = answers[1:]
			return true, nil, answer
		})
		m := &migration{Clients: &cli.Clients{Kube: fake.NewClientset()}, metadata: metadatafake.NewSimpleMetadataClient(scheme, secret), caller: caller}
		if err := m.freezeSecrets(t.Context()); err != nil || len(answers) > 0 {
			t.Errorf("freezeSecrets() = %v with %d attempts left, want none and no error", err, len(answers))
		}
	})
}

// TestAssign checks that only references to the account of a Secret get its UID. With the UID of another object, the garbage
// collector would delete the Secret.
func TestAssign(t *testing.T) {
	owner := func(apiVersion, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "before"}
	}
	const group, kind = "authentication.open-cluster-management.io", "ManagedServiceAccount"
	others := []metav1.OwnerReference{owner("v1", "ConfigMap", "account"), owner("other.io/v1", kind, "account"), owner(group+"/v1beta1", kind, "other"), owner("a/b/c", kind, "account")}
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		want   []types.UID
	}{
		"others":   {others, []types.UID{"before", "before", "before", "before"}},
		"both":     {append(slices.Clone(others[:1]), owner(group+"/v1alpha1", kind, "account"), owner(group+"/v1beta1", kind, "account")), []types.UID{"before", "after", "after"}},
		"no owner": {nil, nil},
	} {
		secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "account", OwnerReferences: test.owners}}
		changed := assign(secret, "after")
		var got []types.UID
		for _, owner := range secret.OwnerReferences {
			got = append(got, owner.UID)
		}
		if !slices.Equal(got, test.want) || changed != slices.Contains(test.want, "after") {
			t.Errorf("%s: assign() = %t with UIDs %q, want UIDs %q", name, changed, got, test.want)
		}
		if assign(secret, "after") {
			t.Errorf("%s: assign() of an assigned Secret = true, want false", name)
		}
	}
}
