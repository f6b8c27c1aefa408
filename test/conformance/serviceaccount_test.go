package conformance

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
)

// proposalSample is the sample of the ManagedServiceAccount proposal, unchanged, including its status.
const proposalSample = "# `ManagedServiceAccount`is cluster-scoped\n" + `apiVersion: proxy.open-cluster-management.io/v1alpha1
kind: ManagedServiceAccount
metadata:
  name: my-foo-operator-serviceaccount
  namespace: cluster-1
spec:
  audiences: 
  - foo
  - bar
  rotation:
    enabled: true
    validity: 4320h0m0s
status:
  conditions:
    - type: AllServiceAccountPresent
      status: True
`

// In every version, the server accepts the sample of the proposal, although a condition in its status
// has a boolean instead of a string. The server ignores the status.
func TestSampleOfManagedServiceAccounts(t *testing.T) {
	t.Parallel()
	const namespace, name = "cluster-1", "my-foo-operator-serviceaccount"
	shared.addCluster(t, namespace)
	accounts := shared.dynamic.Resource(authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")).Namespace(namespace)
	for _, version := range []schema.GroupVersion{proxyv1alpha1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion, authenticationv1beta1.SchemeGroupVersion} {
		sample := strings.Replace(proposalSample, proxyv1alpha1.SchemeGroupVersion.String(), version.String(), 1)
		var applied string
		for i, how := range [][]string{{"apply"}, {"apply"}, {"apply", "--dry-run=server"}, {"apply", "--server-side", "--force-conflicts"}, {"replace"}, {"delete"}, {"create"}, {"delete"}} {
			if out, stderr, err := shared.kubectl(t, sample, append(how, "--filename=-")...); err != nil {
				t.Fatalf("kubectl %v of %s: %v: %s%s", how, version, err, out, stderr)
			}
			if how[0] == "delete" {
				continue
			}
			stored, err := accounts.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				applied = stored.GetResourceVersion()
			} else if i == 1 && stored.GetResourceVersion() != applied {
				t.Errorf("resourceVersion after the second kubectl %v of %s = %s, want %s as before: %v",
					how, version, stored.GetResourceVersion(), applied, stored.Object)
			}
			spec, _ := stored.Object["spec"].(map[string]any)
			if audiences, _ := spec["audiences"].([]any); len(audiences) != 2 {
				t.Errorf("kubectl %v of %s: spec = %v, want 2 audiences", how, version, spec)
			}
			if reports(stored, "AllServiceAccountPresent") {
				t.Errorf("kubectl %v of %s: status = %v, want no condition AllServiceAccountPresent", how, version, stored.Object["status"])
			}
		}
	}
}

// If a client disables rotation, the server returns a warning that rotation stays enabled.
func TestRotationWarns(t *testing.T) {
	t.Parallel()
	namespace := "p-" + rand.String(8)
	shared.addCluster(t, namespace)
	for enabled, want := range map[string]bool{"true": false, "false": true} {
		out, stderr, err := shared.kubectl(t, `{"apiVersion":"authentication.open-cluster-management.io/v1beta1","kind":"ManagedServiceAccount",
			"metadata":{"name":"rotated-`+enabled+`","namespace":"`+namespace+`"},"spec":{"rotation":{"enabled":`+enabled+`}}}`, "create", "--filename=-")
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
		if got := strings.Contains(out+stderr, "spec.rotation.enabled: false has no effect"); got != want {
			t.Errorf("rotation.enabled: %s: warned = %v, want %v: %s", enabled, got, want, stderr)
		}
	}
}

// The server warns clients of the deprecated version, and no other clients.
func TestDeprecatedVersionWarns(t *testing.T) {
	t.Parallel()
	namespace := "p-" + rand.String(8)
	shared.addCluster(t, namespace)
	client, err := rest.HTTPClientFor(shared.admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{authenticationv1beta1.SchemeGroupVersion.String(), authenticationv1alpha1.SchemeGroupVersion.String(), proxyv1alpha1.SchemeGroupVersion.String()} {
		collection := shared.admin.Host + "/apis/" + version + "/namespaces/" + namespace + "/managedserviceaccounts"
		body := `{"apiVersion":"` + version + `","kind":"ManagedServiceAccount","metadata":{"name":"warned","namespace":"` + namespace + `"}}`
		for _, send := range []func() (*http.Response, error){
			func() (*http.Response, error) {
				return client.Post(collection, "application/json", bytes.NewReader([]byte(body)))
			},
			func() (*http.Response, error) { return client.Get(collection) },
			func() (*http.Response, error) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, collection+"/warned", nil)
				if err != nil {
					return nil, err
				}
				return client.Do(request)
			},
		} {
			response, err := send()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode >= http.StatusBadRequest {
				t.Errorf("%s %s: status = %s, want success", response.Request.Method, version, response.Status)
			}
			warned := strings.Contains(response.Header.Get("Warning"), "use "+authenticationv1beta1.SchemeGroupVersion.String())
			if want := version == authenticationv1alpha1.SchemeGroupVersion.String(); warned != want {
				t.Errorf("%s %s: Warning header = %q, want a deprecation warning: %t", response.Request.Method, version, response.Header.Get("Warning"), want)
			}
		}
	}
}
