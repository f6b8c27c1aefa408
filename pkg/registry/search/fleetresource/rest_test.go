package fleetresource

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// everyone grants every caller the Scope of all resources.
type everyone struct{}

func (everyone) Scope(context.Context, user.Info) (visibility.Scope, error) {
	return visibility.Everything(), nil
}

func (everyone) Subscribe(user.Info) (<-chan struct{}, func()) { return nil, func() {} }

// newFleet returns the storage for two clusters. Each cluster reports itself and a Pod, and both
// Pods have the same UID.
func newFleet(t *testing.T) *REST {
	t.Helper()
	engine, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, cluster := range []string{"east", "west"} {
		report := &search.Report{Cluster: cluster, Full: true, Time: time.Now()}
		for uid, text := range map[string]string{
			"cluster__" + cluster: `{"kind":"Cluster","name":"` + cluster + `"}`,
			cluster + "/pod":      `{"kind":"Pod","name":"web"}`,
		} {
			properties, err := query.DecodeProperties([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			report.Put = append(report.Put, search.Resource{UID: uid, Properties: properties})
		}
		if _, err := engine.Apply(t.Context(), report); err != nil {
			t.Fatal(err)
		}
	}
	return NewREST(Options{Engine: engine, Scopes: everyone{}})
}

func in(t *testing.T, namespace string) context.Context {
	return request.WithNamespace(request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"}), namespace)
}

// The API server authorizes one namespace, so Get must not return objects of another namespace.
func TestGetStaysInItsNamespace(t *testing.T) {
	fleet := newFleet(t)
	for _, test := range []struct{ namespace, name, cluster string }{
		{"east", "cluster__east", "east"},
		{"west", "cluster__west", "west"},
		{"east", "pod", "east"},
		{"east", "cluster__west", ""},
		{"none", "cluster__west", ""},
		{"none", "pod", ""},
	} {
		t.Run(test.namespace+"/"+test.name, func(t *testing.T) {
			got, err := fleet.Get(in(t, test.namespace), test.name, &metav1.GetOptions{})
			if test.cluster == "" {
				if !apierrors.IsNotFound(err) {
					t.Fatalf("Get(%s/%s) = %v, %v, want not found", test.namespace, test.name, got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if object := got.(*searchv1alpha1.FleetResource); object.Namespace != test.cluster || object.Name != test.name {
				t.Errorf("Get(%s/%s) = %s/%s, want %s/%s", test.namespace, test.name, object.Namespace, object.Name, test.cluster, test.name)
			}
		})
	}
}

func TestListByName(t *testing.T) {
	fleet := newFleet(t)
	for _, test := range []struct{ namespace, name, want string }{
		{"", "cluster__east", "east/cluster__east"},
		{"", "pod", "east/pod west/pod"},
		{"east", "cluster__east", "east/cluster__east"},
		{"east", "cluster__west", ""},
		{"west", "pod", "west/pod"},
	} {
		t.Run(test.namespace+"/"+test.name, func(t *testing.T) {
			got, err := fleet.List(in(t, test.namespace), &metainternalversion.ListOptions{
				FieldSelector: fields.OneTermEqualSelector(fieldName, test.name),
			})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, object := range got.(*searchv1alpha1.FleetResourceList).Items {
				names = append(names, object.Namespace+"/"+object.Name)
			}
			if strings.Join(names, " ") != test.want {
				t.Errorf("List() = %v, want %s", names, test.want)
			}
		})
	}
}

// batched is an engine that records how resources are read by their UIDs.
type batched struct {
	search.Engine
	reads [][]string
}

func (b *batched) GetMany(ctx context.Context, scope visibility.Scope, uids []string) ([]search.Item, error) {
	b.reads = append(b.reads, uids)
	return b.Engine.GetMany(ctx, scope, uids)
}

// TestListByNameReadsOnce checks that a list by name in all namespaces is one read of the engine.
func TestListByNameReadsOnce(t *testing.T) {
	fleet := newFleet(t)
	engine := &batched{Engine: fleet.Engine}
	fleet.Engine = engine
	for name, want := range map[string]string{"pod": "[[east/pod west/pod]]", "nope": "[[east/nope west/nope]]", "cluster__east": "[[cluster__east]]"} {
		engine.reads = nil
		if _, err := fleet.List(in(t, ""), &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector(fieldName, name)}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(engine.reads); got != want {
			t.Errorf("reads of a list of %s = %s, want %s", name, got, want)
		}
	}
}

// kubectl sends a limit of 500 and, after ten requests, five requests per second.
func TestTableOfDefaultLimitIsWhole(t *testing.T) {
	const resources = 700
	fleet := newFleet(t)
	report := &search.Report{Cluster: "north", Full: true, Time: time.Now()}
	for i := range resources {
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("north/%d", i)})
	}
	if _, err := fleet.Engine.Apply(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		accept string
		limit  int64
		want   int
	}{
		"table":                    {"application/json;as=Table;v=v1;g=meta.k8s.io", 500, resources},
		"table with a lower limit": {"application/json;as=Table;v=v1;g=meta.k8s.io", 499, 499},
		"objects":                  {"application/json", 500, 500},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept", test.accept)
			info := &request.RequestInfo{APIGroup: searchv1alpha1.GroupName, Resource: "fleetresources"}
			ctx := serving.Adapt(r.WithContext(request.WithRequestInfo(in(t, "north"), info))).Context()
			var names []string
			options := &metainternalversion.ListOptions{Limit: test.limit}
			for page := 0; page == 0 || options.Continue != ""; page++ {
				got, err := fleet.List(ctx, options)
				if err != nil {
					t.Fatal(err)
				}
				list := got.(*searchv1alpha1.FleetResourceList)
				if page == 0 && len(list.Items) != test.want {
					t.Errorf("objects in the first page of List() = %d, want %d", len(list.Items), test.want)
				}
				if page == 0 && (list.Continue != "") != (test.want < resources) {
					t.Errorf("continue token of List() after %d of %d objects = %q, want one only if there are more", test.want, resources, list.Continue)
				}
				for i := range list.Items {
					names = append(names, list.Items[i].Name)
				}
				options.Continue = list.Continue
			}
			slices.Sort(names)
			if names = slices.Compact(names); len(names) != resources {
				t.Errorf("different objects in all pages of List() = %d, want %d", len(names), resources)
			}
		})
	}
}

// TestWatchReleasesItsSeat checks that a watch releases its seat of API Priority and Fairness after its initial events.
func TestWatchReleasesItsSeat(t *testing.T) {
	fleet := newFleet(t)
	for _, version := range []string{"", "1"} {
		signal, initialized := utilflowcontrol.NewInitializationSignal(), make(chan struct{})
		go func() {
			signal.Wait()
			close(initialized)
		}()
		eventStream, err := fleet.Watch(utilflowcontrol.WithInitializationSignal(in(t, ""), signal), &metainternalversion.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		for waiting, timeout := true, time.After(await.Patience); waiting; {
			select {
			case <-eventStream.ResultChan():
			case <-initialized:
				waiting = false
			case <-timeout:
				t.Fatalf("signal of Watch() from version %q that it is initialized = none, want one", version)
			}
		}
		eventStream.Stop()
	}
}
