package membership

import (
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newStore returns a store on a managed cluster that contains the given Secrets.
func newStore(secrets ...runtime.Object) (*store, *fake.Clientset) {
	client := fake.NewClientset(secrets...)
	return &store{secrets: client.CoreV1().Secrets("agents"), name: "hub", clusterName: "cluster1"}, client
}

// stored returns the Secret on the managed cluster, or nil.
func stored(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := client.CoreV1().Secrets("agents").Get(t.Context(), "hub", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func identitySecret(data map[string]string, annotations map[string]string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "hub", Annotations: annotations}, Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	return secret
}

func wantData(t *testing.T, what string, got map[string][]byte, want map[string]string) {
	t.Helper()
	text := map[string]string{}
	for key, value := range got {
		text[key] = string(value)
	}
	if !maps.Equal(text, want) {
		t.Errorf("%s = %v, want %v", what, text, want)
	}
}

func TestStoreReads(t *testing.T) {
	uid := types.UID("u")
	for name, test := range map[string]struct {
		secret  *corev1.Secret
		want    map[string]string
		deleted *types.UID
		fails   bool
	}{
		"none":             {nil, map[string]string{}, nil, false},
		"empty":            {identitySecret(nil, nil), map[string]string{}, nil, false},
		"identity":         {identitySecret(map[string]string{keyClusterName: "cluster1", keyAgentName: "a"}, nil), map[string]string{keyClusterName: "cluster1", keyAgentName: "a"}, nil, false},
		"deleted cluster":  {identitySecret(map[string]string{keyAgentName: "a"}, map[string]string{deletedAnnotation: "u"}), map[string]string{keyAgentName: "a"}, &uid, false},
		"other cluster":    {identitySecret(map[string]string{keyClusterName: "cluster2"}, nil), nil, nil, true},
		"keys of upstream": {identitySecret(map[string]string{"other": "x"}, nil), map[string]string{"other": "x"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if test.secret != nil {
				objects = append(objects, test.secret)
			}
			s, _ := newStore(objects...)
			known, err := s.read(t.Context())
			if (err != nil) != test.fails {
				t.Fatalf("read() = %v, want an error = %t", err, test.fails)
			}
			if test.fails {
				if foreign := (*foreignError)(nil); !errors.As(err, &foreign) {
					t.Errorf("read() = %v, want a foreignError", err)
				}
				return
			}
			wantData(t, "read()", known.data, test.want)
			if (known.deleted == nil) != (test.deleted == nil) || known.deleted != nil && *known.deleted != *test.deleted {
				t.Errorf("deleted = %v, want %v", known.deleted, test.deleted)
			}
			if held := s.last() != nil; held != (test.secret != nil) {
				t.Errorf("last() is not nil = %t, want %t", held, test.secret != nil)
			}
		})
	}
}

func TestStoreWrites(t *testing.T) {
	s, client := newStore()
	setAgent := func(i *identity) { i.set(keyAgentName, "a") }
	known, err := s.write(t.Context(), setAgent)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{keyClusterName: "cluster1", keyAgentName: "a"}
	wantData(t, "write()", known.data, want)
	wantData(t, "the Secret", stored(t, client).Data, want)

	client.ClearActions()
	if _, err := s.write(t.Context(), setAgent); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("write() without a change sent %s, want only get", action.GetVerb())
		}
	}

	// A change of the returned identity does not change the stored identity.
	known.set(keyAgentName, "b")
	wantData(t, "last()", s.last().data, want)
	known.set(keyAgentName, "")
	if _, exists := known.data[keyAgentName]; exists {
		t.Error("set() with an empty value kept the key, want no key")
	}
}

// TestStoreRetriesConflicts checks that a conflict with another writer keeps the changes of both.
func TestStoreRetriesConflicts(t *testing.T) {
	s, client := newStore(identitySecret(nil, nil))
	conflicts := 2
	client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts == 0 {
			return false, nil, nil
		}
		conflicts--
		other := identitySecret(map[string]string{"other": "x"}, nil)
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), other, "agents"); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "hub", errors.New("another version"))
	})
	if _, err := s.write(t.Context(), func(i *identity) { i.set(keyAgentName, "a") }); err != nil {
		t.Fatal(err)
	}
	wantData(t, "the Secret", stored(t, client).Data, map[string]string{keyClusterName: "cluster1", keyAgentName: "a", "other": "x"})
}

func TestStoreRestores(t *testing.T) {
	s, client := newStore()
	if err := s.restore(t.Context()); err != nil || stored(t, client) != nil {
		t.Errorf("restore() of an unknown identity = %v, want nil and no Secret", err)
	}
	if _, err := s.write(t.Context(), func(i *identity) { i.set(keyAgentName, "a") }); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Secrets("agents").Delete(t.Context(), "hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantData(t, "the restored Secret", stored(t, client).Data, map[string]string{keyClusterName: "cluster1", keyAgentName: "a"})
}

func TestStoreMarksDeletedClusters(t *testing.T) {
	s, client := newStore()
	uid := types.UID("u")
	if err := s.setDeleted(t.Context(), &uid); !apierrors.IsNotFound(err) || stored(t, client) != nil {
		t.Errorf("setDeleted() without a Secret = %v, want NotFound and no Secret", err)
	}
	if _, err := s.write(t.Context(), func(i *identity) { i.set(keyAgentName, "a") }); err != nil {
		t.Fatal(err)
	}
	for _, deleted := range []*types.UID{&uid, nil} {
		if err := s.setDeleted(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		got, marked := stored(t, client).Annotations[deletedAnnotation]
		if marked != (deleted != nil) || marked && got != string(uid) || (s.last().deleted != nil) != marked {
			t.Errorf("after setDeleted(%v): annotation = %q (set = %t), last().deleted = %v", deleted, got, marked, s.last().deleted)
		}
	}
	wantData(t, "the Secret", stored(t, client).Data, map[string]string{keyClusterName: "cluster1", keyAgentName: "a"})
}
