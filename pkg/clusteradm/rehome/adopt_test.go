package rehome

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// newAdoption returns an adoption by a hub with objects, and its output.
func newAdoption(t *testing.T, objects ...*unstructured.Unstructured) (*adoption, *dynamicfake.FakeDynamicClient, *bytes.Buffer) {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range handover.Kinds {
		lists[kind.Resource] = kind.Name + "List"
	}
	out := &bytes.Buffer{}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, object := range objects {
		// The fake would guess the resource of a registration.
		i := slices.IndexFunc(handover.Kinds, func(kind handover.Kind) bool { return kind.Name == object.GetKind() })
		if err := client.Tracker().Create(handover.Kinds[i].Resource, object, ""); err != nil {
			t.Fatal(err)
		}
	}
	return &adoption{
		Environment: cli.Environment{IOStreams: genericiooptions.IOStreams{Out: out}}, Clients: &cli.Clients{Dynamic: client, Kube: fake.NewClientset()}, archive: &archive{}, epoch: rehoming.Epoch{Number: 3, Hub: "hub"},
	}, client, out
}

// TestObstacles checks that requests to join do not show that a hub is in use, and that all other objects of each kind are
// listed at once.
func TestObstacles(t *testing.T) {
	var objects []*unstructured.Unstructured
	var services []runtime.Object
	for _, version := range append(handover.SwitchedVersions(), migrationv1alpha1.SchemeGroupVersion) {
		services = append(services, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: cli.APIServiceName(version)},
			Status:     apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}},
		})
	}
	newOf := func(kind, name string, fields map[string]any) {
		i := slices.IndexFunc(handover.Kinds, func(k handover.Kind) bool { return k.Name == kind })
		object := exported(handover.Kinds[i], name)
		for field, value := range fields {
			object.Object[field] = value
		}
		objects = append(objects, object)
	}
	pending := map[string]any{"spec": map[string]any{"hubAcceptsClient": false}}
	acceptance := func(fields map[string]any) map[string]any {
		return map[string]any{"status": map[string]any{"acceptance": fields}}
	}
	registrationOf := func(cluster string) map[string]any {
		return map[string]any{"spec": map[string]any{"managedClusterUID": "ManagedCluster/" + cluster}}
	}
	for name, fields := range map[string]map[string]any{
		"request": pending, "request-without-spec": nil, "denied": acceptance(map[string]any{"accepted": false, "decidedBy": "admin"}),
	} {
		newOf(handover.KindManagedCluster, name, fields)
		newOf(handover.KindRegistration, name, registrationOf(name))
	}
	want := []string{"/accepted", "/was-accepted", "/is-accepted", "/orphaned"}
	newOf(handover.KindManagedCluster, "accepted", map[string]any{"spec": map[string]any{"hubAcceptsClient": true}})
	newOf(handover.KindManagedCluster, "was-accepted", acceptance(map[string]any{"everAccepted": true}))
	newOf(handover.KindManagedCluster, "is-accepted", acceptance(map[string]any{"accepted": true}))
	newOf(handover.KindRegistration, "orphaned", registrationOf("gone"))
	newOf(handover.KindClusterSet, "default", nil)
	for _, kind := range handover.Kinds {
		if kind.Name != handover.KindManagedCluster && kind.Name != handover.KindRegistration {
			// The field of a registration, in an object of a tenant.
			newOf(kind.Name, "used", registrationOf("request"))
			want = append(want, strings.ToLower(kind.Name)+"."+kind.Resource.Group+"/used")
		}
	}
	a, _, _ := newAdoption(t, objects...)
	a.APIServices = aggregatorfake.NewSimpleClientset(services...).ApiregistrationV1().APIServices()
	findings, err := a.obstacles(t.Context())
	if err != nil || len(findings) != len(want) {
		t.Errorf("obstacles() = %v, %v, want findings about %q", findings, err, want)
	}
	for _, name := range want {
		if !slices.ContainsFunc(findings, func(f cli.Finding) bool { return strings.HasSuffix(f.Subject, name) && f.State == cli.StateBad }) {
			t.Errorf("obstacles() = %v, want a finding about %s", findings, name)
		}
	}
}

// TestAdoptListsRefused checks that all refused objects of all kinds are listed before anything is written, and that only they
// are left out on demand.
func TestAdoptListsRefused(t *testing.T) {
	for _, skip := range []bool{false, true} {
		a, client, out := newAdoption(t)
		a.skip = skip
		var wave []*unstructured.Unstructured
		for _, kind := range handover.Kinds {
			for _, name := range []string{"good", "invalid", "occupied"} {
				wave = append(wave, exported(kind, name))
			}
		}
		// The cluster of a registration that is left out.
		unregistered := exported(handover.Kinds[1], "invalid")
		unregistered.SetUID("unregistered")
		a.waves = [][]*unstructured.Unstructured{wave, {unregistered}}
		var mu sync.Mutex
		stored := map[types.UID]bool{}
		client.PrependReactor("create", "imports", func(action clienttesting.Action) (bool, runtime.Object, error) {
			create := action.(clienttesting.CreateActionImpl)
			request := create.Object.(*unstructured.Unstructured)
			content, _, _ := unstructured.NestedMap(request.Object, "spec", "object")
			object := &unstructured.Unstructured{Object: content}
			resource := schema.GroupResource{Group: object.GroupVersionKind().Group, Resource: "things"}
			switch object.GetName() {
			case "invalid":
				return true, nil, apierrors.NewInvalid(object.GroupVersionKind().GroupKind(), "invalid", nil)
			case "occupied":
				return true, nil, apierrors.NewConflict(resource, "occupied", errors.New("an object with another UID exists"))
			}
			if len(create.CreateOptions.DryRun) == 0 {
				mu.Lock()
				defer mu.Unlock()
				stored[object.GetUID()] = true
			}
			return true, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"object": content}}}, nil
		})
		err := a.check(t.Context())
		if (err == nil) != skip || len(stored) > 0 {
			t.Errorf("check() with skip=%t = %v, stored %v, want an error unless it skips, and nothing stored", skip, err, stored)
		}
		for _, kind := range handover.Kinds {
			for _, name := range []string{"invalid", "occupied"} {
				if want := manifests.Display(exported(kind, name)) + ":"; !strings.Contains(out.String(), want) {
					t.Errorf("output of check() with skip=%t does not contain %q:\n%s", skip, want, out)
				}
			}
		}
		if !skip {
			continue
		}
		if len(a.waves[1]) > 0 {
			t.Errorf("objects to import = %v, want no cluster whose registration is left out", a.waves[1])
		}
		if err := a.importWaves(t.Context(), a.waves); err != nil || len(stored) != len(handover.Kinds) {
			t.Errorf("importWaves() = %v, stored %v, want only the objects that are not refused", err, stored)
		}
	}
}

// TestOneDoesNotBlockOthers checks that the adoption and the standby command write everything that they can, and name the
// rest.
func TestOneDoesNotBlockOthers(t *testing.T) {
	names := []string{"a", "bad", "c"}
	refuse := func(err error) clienttesting.ReactionFunc {
		return func(action clienttesting.Action) (bool, runtime.Object, error) {
			named, _ := action.(interface{ GetName() string })
			bad := action.GetNamespace() == "bad" || named != nil && named.GetName() == "bad"
			if create, ok := action.(clienttesting.CreateAction); ok {
				object, accessErr := metaOf(create.GetObject())
				bad = accessErr == nil && (object.GetName() == "bad" || object.GetNamespace() == "bad")
			}
			if !bad {
				return false, nil, nil
			}
			return true, nil, err
		}
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "bad", nil)

	var objects []*unstructured.Unstructured
	for _, name := range names {
		objects = append(objects, exported(handover.Kinds[1], name))
	}
	a, client, _ := newAdoption(t)
	a.archive.Objects = objects
	var mu sync.Mutex
	raised := map[string]string{}
	client.PrependReactor("create", "imports", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
		name, _, _ := unstructured.NestedString(request.Object, "spec", "epoch", "managedCluster")
		epoch, _, _ := unstructured.NestedString(request.Object, "spec", "epoch", "epoch")
		if name == "bad" {
			return true, nil, apierrors.NewForbidden(clusterv1.Resource("managedclusters"), name, errors.New("no permission"))
		}
		mu.Lock()
		defer mu.Unlock()
		raised[name] = epoch
		return true, request, nil
	})
	if err := a.raise(t.Context()); err == nil || !strings.Contains(err.Error(), "managedcluster.cluster.open-cluster-management.io/bad: ") {
		t.Errorf("raise() with a cluster that the server refuses = %v, want an error that names the cluster", err)
	}
	if want := map[string]string{"a": "3/hub", "c": "3/hub"}; !maps.Equal(raised, want) {
		t.Errorf("raised epochs = %v, want %v", raised, want)
	}

	a, _, _ = newAdoption(t)
	kube := fake.NewClientset()
	kube.PrependReactor("create", "namespaces", refuse(invalid))
	a.Kube = kube
	for _, name := range names {
		a.archive.Namespaces = append(a.archive.Namespaces, archivedNamespace{Name: name})
	}
	if err := a.createNamespaces(t.Context(), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "namespace bad") {
		t.Errorf("createNamespaces() = %v, want an error about the namespace bad", err)
	}
	if list, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("namespaces = %v, %v, want the others", list, err)
	}

	// Somebody has created the ManifestWork before, so that the agent would not write the Secret.
	hostile := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: standbyWork}}
	hostile.Spec.Executor = &workv1.ManifestWorkExecutor{}
	hub := ocmfake.NewSimpleClientset(hostile)
	hub.PrependReactor("create", "manifestworks", refuse(invalid))
	out := &bytes.Buffer{}
	s := &standby{Environment: cli.Environment{IOStreams: genericiooptions.IOStreams{Out: out}}, clusters: names}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	if err := s.deliver(t.Context(), hub, secret); err == nil || !strings.Contains(err.Error(), "cluster bad: ") || !strings.Contains(out.String(), "of 2 of 3 clusters") {
		t.Errorf("deliver() = %v with output %q, want an error about the cluster bad, and that 2 of 3 are changed", err, out)
	}
	for _, name := range []string{"a", "c"} {
		work, err := hub.WorkV1().ManifestWorks(name).Get(t.Context(), standbyWork, metav1.GetOptions{})
		if err != nil || len(work.Spec.Workload.Manifests) != 1 || work.Spec.Executor != nil {
			t.Errorf("ManifestWork of cluster %s = %+v, %v, want the Secret and nothing else", name, work, err)
		}
	}
}

// TestAdoptionContinues checks that an adoption whose record says that all epochs are raised starts the controllers and ends,
// whether they run already or not. With an earlier record, the epochs are raised whatever the Lease shows.
func TestAdoptionContinues(t *testing.T) {
	for name, test := range map[string]struct {
		phase  string
		held   bool
		raised bool
	}{
		"raised, not started":         {phase: phaseRaised, held: true},
		"raised and started":          {phase: phaseRaised},
		"not raised":                  {phase: phaseRaising, held: true, raised: true},
		"not raised, without a Lease": {phase: phaseRaising, raised: true},
	} {
		a, client, _ := newAdoption(t)
		a.phase = test.phase
		a.archive.Objects = []*unstructured.Unstructured{exported(handover.Kinds[1], "cluster1")}
		if err := a.record(t.Context(), test.phase); err != nil {
			t.Fatal(err)
		}
		if test.held {
			// The fake gives no UID to what is created.
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "hub-apiserver-controllers", Namespace: manifests.HubNamespace, UID: "1"}}
			if err := a.Kube.(*fake.Clientset).Tracker().Add(lease); err != nil {
				t.Fatal(err)
			}
			if err := handover.Hold(t.Context(), a.Kube); err != nil {
				t.Fatal(err)
			}
		}
		raised := false
		client.PrependReactor("create", "imports", func(action clienttesting.Action) (bool, runtime.Object, error) {
			state, err := handover.Adoption(t.Context(), a.Kube)
			if err != nil || state.Data[handover.AdoptionPhase] != phaseRaising {
				t.Errorf("%s: state while the epoch is raised = %v, %v, want the phase %s", name, state, err, phaseRaising)
			}
			raised = true
			return true, action.(clienttesting.CreateAction).GetObject(), nil
		})
		if err := handover.RunSteps(t.Context(), a.Environment, "", a.steps()); err != nil {
			t.Errorf("%s: steps() = %v, want no error", name, err)
		}
		held, err := handover.Held(t.Context(), a.Kube)
		if err != nil || held || raised != test.raised {
			t.Errorf("%s: the Lease is held = %t (%v), epochs raised = %t, want false and %t", name, held, err, raised, test.raised)
		}
		if state, err := handover.Adoption(t.Context(), a.Kube); err != nil || state.Data[handover.AdoptionPhase] != handover.AdoptionDone {
			t.Errorf("%s: state at the end = %v, %v, want the phase %s", name, state, err, handover.AdoptionDone)
		}
	}
}

func metaOf(obj runtime.Object) (metav1.Object, error) {
	if namespace, ok := obj.(*corev1.Namespace); ok {
		return namespace, nil
	}
	accessor, ok := obj.(metav1.Object)
	if !ok {
		return nil, errors.New("no metadata")
	}
	return accessor, nil
}
