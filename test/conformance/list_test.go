package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// compareVersions compares resource versions.
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
			t.Errorf("the list at %s is older than its object at %s (%v)", list.GetResourceVersion(), first.GetResourceVersion(), err)
		}
		second := p.create(t)

		at := func(resourceVersion string, match metav1.ResourceVersionMatch) ([]string, error) {
			options := p.listOptions()
			options.ResourceVersion, options.ResourceVersionMatch = resourceVersion, match
			return p.names(t.Context(), options)
		}
		if got, err := at("", ""); err != nil || len(got) != 2 {
			t.Errorf("the latest list has %v (%v)", got, err)
		}
		if got, err := at(second.GetResourceVersion(), metav1.ResourceVersionMatchNotOlderThan); err != nil || len(got) != 2 {
			t.Errorf("a list not older than the second object has %v (%v)", got, err)
		}
		if got, err := at(list.GetResourceVersion(), metav1.ResourceVersionMatchExact); err != nil || !slices.Equal(got, []string{first.GetName()}) {
			t.Errorf("the list of before the second object has %v (%v)", got, err)
		}
		eventually(t, "a list from the cache", func(context.Context) error {
			if got, err := at("0", ""); err != nil || len(got) != 2 {
				return fmt.Errorf("has %v (%w)", got, err)
			}
			return nil
		})
		// Without the retries that client-go makes on its own.
		err = p.hub.kube.Discovery().RESTClient().Get().AbsPath(p.path(p.namespace)).
			Param("resourceVersion", "999999999999").Param("resourceVersionMatch", "NotOlderThan").
			MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("a version of the future: got %v", err)
		}
		if _, err := at("nonsense", ""); !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("no version at all: got %v", err)
		}
	})
}

// TestListInPages checks that the pages of one list show one moment.
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
				t.Errorf("page %d is of version %s, the first of %s", page, list.GetResourceVersion(), version)
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
			if len(list.Items) != 2 {
				t.Errorf("page %d has %d objects", page, len(list.Items))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestProtobufPreferred checks that a client which prefers protobuf and takes
// JSON, as the hub's controllers do, gets an answer.
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

// TestExpired checks that what history no longer has is told to be gone, by
// which clients know that they must list anew.
func TestExpired(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		p.create(t)
		p.create(t)
		options := p.listOptions()
		options.Limit = 1
		list, err := p.client.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		options.Continue = list.GetContinue()
		exact := p.listOptions()
		exact.ResourceVersion, exact.ResourceVersionMatch = list.GetResourceVersion(), metav1.ResourceVersionMatchExact
		for what, options := range map[string]metav1.ListOptions{"continued list": options, "exact list": exact} {
			eventually(t, what, func(ctx context.Context) error {
				// History is made of changes; without any, nothing of it goes away.
				p.create(t)
				_, err := p.client.List(ctx, options)
				if !apierrors.IsResourceExpired(err) {
					return errors.Join(errors.New("has not expired"), err)
				}
				return nil
			})
		}
	})
}
