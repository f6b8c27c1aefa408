package cli

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// KindAPIService is the kind of an APIService.
const KindAPIService = "APIService"

// reasonLocal is the reason of the condition Available of an APIService whose version the hub serves itself.
const reasonLocal = "Local"

// APIServiceName returns the name of the APIService of a version.
func APIServiceName(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// Forwards reports whether a hub forwards a version to an API server. CustomResourceDefinitions serve others.
func (c *Clients) Forwards(ctx context.Context, version schema.GroupVersion) (bool, error) {
	name := APIServiceName(version)
	service, err := Optional(c.APIServices.Get(ctx, name, metav1.GetOptions{}))
	return service != nil && service.Spec.Service != nil, Prefix(err, "APIService %s", name)
}

// WaitForAPIService waits until pending returns no reason to wait for an APIService.
func (c *Clients) WaitForAPIService(ctx context.Context, name string, pending func(*apiregistrationv1.APIService) string) error {
	return Prefix(Poll(ctx, func(ctx context.Context) (string, error) {
		current, err := c.APIServices.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return pending(current), nil
	}), "APIService %s", name)
}

// WaitForVersions waits until a hub forwards requests of versions and lists their resources, which it does later than it sets
// the conditions of the APIServices.
func (c *Clients) WaitForVersions(ctx context.Context, versions []string) error {
	client := discovery.ToDiscoveryInterfaceWithContext(c.Kube.Discovery())
	return Poll(ctx, func(ctx context.Context) (string, error) {
		_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
		if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // another API server may fail
			return "", err
		}
		for _, version := range versions {
			if err := client.RESTClient().Get().AbsPath("/apis/" + version).Do(ctx).Error(); err != nil {
				return fmt.Sprintf("a request of %s fails: %s", version, Printable(err.Error())), ctx.Err()
			}
			if !slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool { return list.GroupVersion == version }) {
				return "the hub does not list the resources of " + version + " yet", nil
			}
		}
		return "", nil
	})
}

// Unavailable returns the reason why an APIService is not Available, or an empty string if it is.
func Unavailable(service *apiregistrationv1.APIService) string {
	condition := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	switch {
	case condition == nil:
		return "not checked yet"
	case service.Spec.Service != nil && condition.Reason == reasonLocal:
		return "the hub has not checked it yet since it forwards requests to it"
	case condition.Status == apiregistrationv1.ConditionTrue:
		return ""
	}
	return condition.Reason + ": " + condition.Message
}

// NotLocal returns a reason to wait until a hub serves the version of an APIService itself, or an empty string if it does.
func NotLocal(service *apiregistrationv1.APIService) string {
	if condition := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available); condition != nil && condition.Reason == reasonLocal {
		return ""
	}
	return "it is not local yet"
}
