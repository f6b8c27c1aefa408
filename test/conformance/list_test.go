package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"open-cluster-management.io/hub-apiserver/test/await"
)

func compareVersions(a, b string) (int, error) {
	return resourceversion.CompareResourceVersion(a, b)
}

func TestListAtResourceVersions(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		first := p.create(t)
		list, err := p.client.List(t.Context(), p.listOptions())
		if err != nil {
			t.Fatal(err)
		}
		if order, err := compareVersions(list.GetResourceVersion(), first.GetResourceVersion()); err != nil || order < 0 {
			t.Errorf("resourceVersion of the list = %s, want at least %s, that of its object (%v)", list.GetResourceVersion(), first.GetResourceVersion(), err)
		}
		second := p.create(t)

		at := func(resourceVersion string, match metav1.ResourceVersionMatch) ([]string, error) {
			options := p.listOptions()
			options.ResourceVersion, options.ResourceVersionMatch = resourceVersion, match
			return p.names(t.Context(), options)
		}
		if got, err := at("", ""); err != nil || len(got) != 2 {
			t.Errorf("latest list = %v (%v), want 2 objects", got, err)
		}
		if got, err := at(second.GetResourceVersion(), metav1.ResourceVersionMatchNotOlderThan); err != nil || len(got) != 2 {
			t.Errorf("list not older than the second object = %v (%v), want 2 objects", got, err)
		}
		if got, err := at(list.GetResourceVersion(), metav1.ResourceVersionMatchExact); err != nil || !slices.Equal(got, []string{first.GetName()}) {
			t.Errorf("list before the second object = %v (%v), want %s only", got, err, first.GetName())
		}
		await.Eventually(t, "a list from the cache contains both objects", func(context.Context) error {
			if got, err := at("0", ""); err != nil || len(got) != 2 {
				return fmt.Errorf("list at resourceVersion 0 = %v (%w), want 2 objects", got, err)
			}
			return nil
		})
		// MaxRetries(0) disables the retries of client-go.
		err = p.hub.kube.Discovery().RESTClient().Get().AbsPath(p.path(p.namespace)).
			Param("resourceVersion", "999999999999").Param("resourceVersionMatch", "NotOlderThan").
			MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("list at a future resourceVersion: error = %v, want ResourceVersionTooLarge", err)
		}
		if _, err := at("nonsense", ""); !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("list at resourceVersion \"nonsense\": error = %v, want 400 or 422", err)
		}
	})
}

// TestListInPages checks that all pages of a list are of the same resource version.
func TestListInPages(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		var want []string
		for range 5 {
			want = append(want, p.create(t).GetName())
		}
		slices.Sort(want)
		var got []string
		var version string
		options := p.listOptions()
		options.Limit = 2
		for page := 1; ; page++ {
			list, err := p.client.List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, namesOf(list)...)
			if page == 1 {
				version = list.GetResourceVersion()
				p.create(t)
			}
			if list.GetResourceVersion() != version {
				t.Errorf("resourceVersion of page %d = %s, want %s as on page 1", page, list.GetResourceVersion(), version)
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
			if len(list.Items) != 2 {
				t.Errorf("page %d has %d objects, want 2", page, len(list.Items))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("objects in all pages = %v, want %v", got, want)
		}
	})
}

// TestProtobufPreferred checks that the server answers a client that prefers protobuf and also
// accepts JSON, like the hub's controllers.
func TestProtobufPreferred(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		p.create(t)
		for _, verb := range []string{http.MethodGet, http.MethodDelete} {
			_, err := p.hub.kube.Discovery().RESTClient().Verb(verb).AbsPath(p.path(p.namespace)).
				Param("labelSelector", p.selector()).
				SetHeader("Accept", "application/vnd.kubernetes.protobuf,application/json").DoRaw(t.Context())
			if err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
	})
}

// TestExpired checks that the server reports a compacted resource version as expired, so that
// clients list again. The kinds wait for one compaction together.
func TestExpired(t *testing.T) {
	t.Parallel()
	type list struct {
		*place
		options metav1.ListOptions
	}
	var lists []list
	for _, k := range kinds() {
		p := shared.newPlace(t, k)
		p.create(t)
		p.create(t)
		first := p.listOptions()
		first.Limit = 1
		page, err := p.client.List(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		continued, exact := first, p.listOptions()
		continued.Continue = page.GetContinue()
		exact.ResourceVersion, exact.ResourceVersionMatch = page.GetResourceVersion(), metav1.ResourceVersionMatchExact
		lists = append(lists, list{p, continued}, list{p, exact})
		// Compaction removes only revisions before the last change.
		p.create(t)
	}
	changing := lists[0]
	await.Eventually(t, "all lists are expired", func(ctx context.Context) error {
		changing.create(t)
		for ; len(lists) > 0; lists = lists[1:] {
			if _, err := lists[0].client.List(ctx, lists[0].options); !apierrors.IsResourceExpired(err) {
				return fmt.Errorf("list of %s with %+v = %v, want Expired", lists[0].arg(), lists[0].options, err)
			}
		}
		return nil
	})
}
