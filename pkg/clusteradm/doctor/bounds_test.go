package doctor

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

// hangingHub answers the first requests, and no later ones.
type hangingHub struct{ answers int }

func (h *hangingHub) RoundTrip(request *http.Request) (*http.Response, error) {
	if h.answers > 0 {
		h.answers--
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: request}, nil
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// TestDoctorChecksEnd checks that each check of the doctor ends after 15 seconds, whatever the hub does, and that the
// other findings are printed.
func TestDoctorChecksEnd(t *testing.T) {
	// The first check is the connection, with requests of /version and /readyz. If the hub answers one of them, the others
	// follow, at the same time.
	for args, all := range map[string][]string{
		"hub":   {"version of the hub", "APIServices", "permissions of the server", "roles of the agents", "ManagedClusters", "certificate requests", "ManifestWorks", "ClusterPermissions", "search"},
		"agent": {"Deployment open-cluster-management-agent/agent", "permissions of the agent", "Secret open-cluster-management-agent/hub-kubeconfig-secret"},
	} {
		for answers, wait := range []time.Duration{15 * time.Second, 30 * time.Second, 15 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				access := genericclioptions.NewConfigFlags(false)
				access.APIServer = ptr.To("https://hub.example.com")
				access.WrapConfigFn = func(config *rest.Config) *rest.Config {
					config.Transport = &hangingHub{answers: answers}
					return config
				}
				var out bytes.Buffer
				command := New(cli.Environment{ConfigFlags: access, IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}})
				command.SetArgs([]string{args})
				command.SilenceErrors, command.SilenceUsage = true, true
				began := time.Now()
				_ = command.ExecuteContext(t.Context()) // some checks fail
				if took := time.Since(began); took != wait {
					t.Errorf("clusteradm doctor %s with a hub that hangs after %d requests ends after %s, want %s", args, answers, took, wait)
				}
				want := []string{"API server"}
				if answers > 0 {
					want = append(want, all...)
				}
				for _, subject := range want {
					if !strings.Contains(out.String(), subject) {
						t.Errorf("clusteradm doctor %s with a hub that hangs after %d requests prints %q, want a line with %q", args, answers, out.String(), subject)
					}
				}
			})
		}
	}
}

// TestDoctorInspectsABoundedNumber checks that the doctor inspects at most 5,000 objects of a kind, and says so.
func TestDoctorInspectsABoundedNumber(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		resource string
		page     func(items int, more metav1.ListMeta) runtime.Object
		inspect  func(*hubDoctor, context.Context) ([]cli.Finding, error)
	}{
		"ManifestWorks": {"manifestworks", func(items int, more metav1.ListMeta) runtime.Object {
			list := &workv1.ManifestWorkList{ListMeta: more, Items: make([]workv1.ManifestWork, items)}
			for i := range list.Items {
				list.Items[i].CreationTimestamp = now
			}
			return list
		}, (*hubDoctor).works},
		"ClusterPermissions": {"clusterpermissions", func(items int, more metav1.ListMeta) runtime.Object {
			list := &rbacv1alpha1.ClusterPermissionList{ListMeta: more, Items: make([]rbacv1alpha1.ClusterPermission, items)}
			for i := range list.Items {
				list.Items[i].CreationTimestamp = now
			}
			return list
		}, (*hubDoctor).clusterPermissions},
	} {
		for _, stored := range []int{4999, 5000, 5001, 100_000} {
			hub := ocmfake.NewSimpleClientset()
			left, read := stored, 0
			hub.PrependReactor("list", test.resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				items := min(left, int(action.(clienttesting.ListActionImpl).ListOptions.Limit))
				left, read = left-items, read+items
				more := metav1.ListMeta{}
				if left > 0 {
					more.Continue = "more"
				}
				return true, test.page(items, more), nil
			})
			findings, err := test.inspect(&hubDoctor{report: report{Clients: &cli.Clients{OCM: hub, Kube: fake.NewClientset()}}}, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			incomplete := len(findings) > 0 && findings[len(findings)-1].State == cli.StateUnknown
			if read != min(stored, 5000) || incomplete != (stored > 5000) {
				t.Errorf("of %d %s, the doctor inspects %d and reports %+v, want at most 5000, and an Unknown finding if there are more", stored, name, read, findings)
			}
		}
	}
}
