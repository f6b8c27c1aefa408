package registration

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// markerOf is part of all data of a victim that other clusters must not read.
const markerOf = "marker-of-the-victim"

// victim is an EKS cluster with objects of several kinds in its namespace.
type victim struct {
	irsa.Desired
	hub *awsHub
	// secrets are strings that other clusters must not read.
	secrets []string
	before  []string
}

func (h *awsHub) newVictim(t *testing.T, name string) *victim {
	t.Helper()
	v := &victim{Desired: h.joinEKS(t, name), hub: h}
	label := map[string]string{"label": markerOf}
	framework.Must(h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"label":"`+markerOf+`"}},"spec":{"managedClusterClientConfigs":[{"url":"https://`+markerOf+`"}]}}`), metav1.PatchOptions{}))(t)
	work := framework.ConfigMapWork("work")
	work.Namespace, work.Labels = name, label
	framework.Must(h.OCM.WorkV1().ManifestWorks(name).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	framework.Must(h.HubClient.CoreV1().Secrets(name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret", Labels: label}, StringData: map[string]string{"token": markerOf},
	}, metav1.CreateOptions{}))(t)
	framework.Must(h.HubClient.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config", Labels: label}}, metav1.CreateOptions{}))(t)
	framework.Must(h.OCM.AuthenticationV1beta1().ManagedServiceAccounts(name).Create(t.Context(), &authenticationv1beta1.ManagedServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "account", Labels: label},
	}, metav1.CreateOptions{}))(t)
	granted := framework.Permission("permission")
	granted.Namespace, granted.Labels = name, label
	framework.Must(h.OCM.RbacV1alpha1().ClusterPermissions(name).Create(t.Context(), granted, metav1.CreateOptions{}))(t)
	v.secrets = []string{
		markerOf, string(h.cluster(t, name).UID), string(h.record(t, name).UID), v.Identity.Hash(), v.Managed.String(),
		v.HubRoleARN(), v.ManagedClusterRoleARN(), string(framework.Must(h.HubClient.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}))(t).UID),
	}
	v.before = v.state(t)
	h.aws.ResetCalls()
	return v
}

// state returns the data of a victim, without the data that the server changes on its own.
func (v *victim) state(t *testing.T) []string {
	t.Helper()
	h, name := v.hub, v.ClusterName
	mc, record := h.cluster(t, name), h.record(t, name)
	lines := []string{
		framework.ToJSON(mc.Labels), framework.ToJSON(mc.Annotations), framework.ToJSON(mc.Finalizers), framework.ToJSON(mc.Spec.ManagedClusterClientConfigs), fmt.Sprint(mc.Spec.HubAcceptsClient),
		framework.ToJSON(mc.Status.Acceptance), string(mc.UID), fmt.Sprint(mc.DeletionTimestamp), framework.ToJSON(record.Spec), framework.ToJSON(record.Status.IRSA), string(record.UID),
	}
	work := framework.Must(h.OCM.WorkV1().ManifestWorks(name).Get(t.Context(), "work", metav1.GetOptions{}))(t)
	secret := framework.Must(h.HubClient.CoreV1().Secrets(name).Get(t.Context(), "secret", metav1.GetOptions{}))(t)
	account := framework.Must(h.OCM.AuthenticationV1beta1().ManagedServiceAccounts(name).Get(t.Context(), "account", metav1.GetOptions{}))(t)
	granted := framework.Must(h.OCM.RbacV1alpha1().ClusterPermissions(name).Get(t.Context(), "permission", metav1.GetOptions{}))(t)
	lease := framework.Must(h.HubClient.CoordinationV1().Leases(name).Get(t.Context(), registration.LeaseName, metav1.GetOptions{}))(t)
	lines = append(lines, framework.ToJSON(work.Spec), string(work.UID), framework.ToJSON(secret.Data), string(secret.UID), framework.ToJSON(account.Spec), string(account.UID),
		framework.ToJSON(granted.Spec), string(granted.UID), framework.ToJSON(lease.Spec), string(lease.UID))
	bindings := framework.Must(h.HubClient.RbacV1().RoleBindings(name).List(t.Context(), metav1.ListOptions{}))(t)
	for _, binding := range bindings.Items {
		if strings.HasPrefix(binding.Name, "open-cluster-management:managedcluster:"+name+":") {
			lines = append(lines, binding.Name, framework.ToJSON(binding.RoleRef), framework.ToJSON(binding.Subjects))
		}
	}
	return lines
}

// unharmed fails the test if the victim has changed.
func (v *victim) unharmed(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(v.before, v.state(t)); diff != "" {
		t.Errorf("state of the victim changed (-want +got):\n%s", diff)
	}
	if calls := v.hub.callsFor(v.Desired); len(calls) > 0 {
		t.Errorf("calls to AWS about the identity of the victim = %v, want none", calls)
	}
	if err := errors.Join(v.hub.inAWS(v.Desired), v.hub.hubAccepts(t.Context(), v.ClusterName)); err != nil {
		t.Error(err)
	}
}

// attempt is a request that must be rejected. If want is empty, the status code must be 403.
type attempt struct {
	rawRequest
	want []int
}

func try(method, path string, body ...string) attempt {
	a := attempt{rawRequest: rawRequest{method: method, path: path}}
	if len(body) > 0 {
		a.body = body[0]
	}
	if method == http.MethodPatch {
		a.contentType = mergePatch
	}
	return a
}

func (a attempt) as(contentType string) attempt { a.contentType = contentType; return a }

// answered sets the allowed status codes of an attempt.
func (a attempt) answered(statuses ...int) attempt { a.want = statuses; return a }

func (a attempt) with(header http.Header) attempt { a.header = header; return a }

// refuses sends the attempts, and fails the test if a request is not rejected or if a response contains
// data of the victim.
func (v *victim) refuses(t *testing.T, who *rest.Config, attempts []attempt) {
	t.Helper()
	caller := newRawCaller(t, who)
	for _, a := range attempts {
		code, text := caller.must(t, a.rawRequest)
		want := a.want
		if len(want) == 0 {
			want = []int{http.StatusForbidden}
		}
		if !slices.Contains(want, code) {
			t.Errorf("%s = %d, want one of %v: %.300s", a, code, want, text)
		}
		v.isNotIn(t, a, text)
	}
}

// isNotIn fails the test if a response contains a secret of the victim that the request did not
// contain.
func (v *victim) isNotIn(t *testing.T, a attempt, text string) {
	t.Helper()
	for _, secret := range v.secrets {
		if strings.Contains(text, secret) && !strings.Contains(a.path+a.body, secret) {
			t.Errorf("response to %s contains %q, want no data of the victim: %.500s", a, secret, text)
		}
	}
}

// onClusters returns attempts to change ManagedClusters, and to read or change registrations.
func (v *victim) onClusters(self string) []attempt {
	name := v.ClusterName
	mc := func(name, rest string) string {
		return `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"` + name + `"}` + rest + `}`
	}
	accept := func(name string, accepted bool) string {
		return fmt.Sprintf(`{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAcceptance","metadata":{"name":%q},"spec":{"accepted":%v}}`, name, accepted)
	}
	record := func(name string) string {
		return `{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterRegistration","metadata":{"name":"` + name + `"},"spec":{"driver":"csr"}}`
	}
	claim := func(arn string) string {
		return `{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterIRSA","spec":{"managedClusterARN":"` + arn + `"}}`
	}
	one, own := clustersPath+"/"+name, clustersPath+"/"+self
	attempts := []attempt{
		try("PUT", one, mc(name, `,"spec":{"hubAcceptsClient":false}`)),
		try("PATCH", one, `{"spec":{"hubAcceptsClient":false}}`),
		try("PATCH", one, `{"metadata":{"finalizers":[]}}`),
		try("PATCH", one, `[{"op":"remove","path":"/metadata/finalizers"}]`).as(jsonPatch),
		try("PATCH", one, `{"metadata":{"labels":{"label":null}}}`).as(strategicPatch),
		try("PATCH", one+"?fieldManager=x&force=true", mc(name, `,"spec":{"hubAcceptsClient":false}`)).as(applyPatch),
		try("PUT", one+"/status", mc(name, `,"status":{"conditions":[]}`)), try("PATCH", one+"/status", `{"status":{"conditions":[]}}`),
		try("DELETE", one), try("DELETE", clustersPath), try("DELETE", clustersPath+"?fieldSelector=metadata.name="+self), try("DELETE", own),
		try("POST", clustersPath, mc("hostile-new", `,"spec":{"hubAcceptsClient":true}`)),

		try("PUT", registrationsPath+"/"+self+"/accept", accept(self, true)), try("PUT", registrationsPath+"/"+name+"/accept", accept(name, false)),
		try("PATCH", registrationsPath+"/"+name+"/accept", `{"spec":{"accepted":false}}`).answered(403, 405), try("GET", registrationsPath+"/"+name+"/accept").answered(403, 405),
		try("GET", registrationsPath+"/"+name+"/irsa"), try("DELETE", registrationsPath+"/"+self+"/irsa"), try("DELETE", registrationsPath+"/"+name+"/irsa"),

		try("GET", registrationsPath), try("GET", registrationsPath+"?watch=true&timeoutSeconds=1"), try("GET", registrationsPath+"/"+name), try("GET", registrationsPath+"/"+self),
		try("GET", registrationsPath+"?fieldSelector=metadata.name="+self), try("POST", registrationsPath, record("hostile-new")).answered(403, 405),
		try("PUT", registrationsPath+"/"+self, record(self)).answered(403, 405), try("PATCH", registrationsPath+"/"+name, `{"spec":{"driver":"csr"}}`).answered(403, 405),
		try("DELETE", registrationsPath+"/"+name).answered(403, 405), try("DELETE", registrationsPath).answered(403, 405),
		// Reserved identities are stored but not served.
		try("GET", "/apis/register.open-cluster-management.io/v1alpha1/identities").answered(403, 404),
		try("GET", "/apis/register.open-cluster-management.io/v1alpha1/identities/"+v.Identity.Hash()).answered(403, 404),
	}
	for _, which := range []string{self, name} {
		for _, arn := range []string{v.Managed.String(), "arn:aws:eks:us-west-2:444455556666:cluster/hostile"} {
			attempts = append(attempts, try("POST", registrationsPath+"/"+which+"/irsa", claim(arn)))
		}
	}
	return attempts
}

// onLooks returns attempts to read ManagedClusters.
func (v *victim) onLooks(self string) []attempt {
	one := clustersPath + "/" + v.ClusterName
	return []attempt{
		try("GET", one), try("GET", one+"/status"), try("GET", clustersPath), try("GET", clustersPath+"?limit=1"), try("GET", clustersPath+"?watch=true&timeoutSeconds=1"),
		try("GET", one).with(http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}}),
		try("GET", clustersPath+"?fieldSelector=metadata.name%3D"+v.ClusterName), try("GET", clustersPath+"?fieldSelector=metadata.name!%3D"+self),
		try("GET", clustersPath+"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D"+v.ClusterName),
		try("GET", clustersPath+"?fieldSelector=spec.hubAcceptsClient%3Dtrue"), try("GET", clustersPath+"?labelSelector=label%3D"+markerOf),
		// Both terms of a field selector must match, so the list may only be empty or rejected.
		try("GET", clustersPath+"?fieldSelector=metadata.name%3D"+self+",metadata.name%3D"+v.ClusterName).answered(200, 403),
		try("GET", clustersPath+"?fieldSelector=metadata.name%3D"+v.ClusterName+",metadata.name%3D"+self).answered(200, 403),
		try("GET", "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets"),
	}
}

// onNamespaces returns attempts on objects in the namespaces of clusters and elsewhere on the hub.
func (v *victim) onNamespaces(self string) []attempt {
	const works, accounts = "/apis/work.open-cluster-management.io/v1", "/apis/authentication.open-cluster-management.io/v1beta1"
	const rbac, search = "/apis/rbac.open-cluster-management.io/v1alpha1", "/apis/search.open-cluster-management.io/v1alpha1"
	const kubeRBAC, core = "/apis/rbac.authorization.k8s.io/v1", "/api/v1"
	in, own := "/namespaces/"+v.ClusterName, "/namespaces/"+self
	binding := `{"metadata":{"name":"hostile"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"` + localhub.AgentGroup(self) + `"}]}`
	ownRole := kubeRBAC + "/clusterroles/open-cluster-management:managedcluster:" + self
	attempts := []attempt{
		try("PATCH", works+in+"/manifestworks/work", `{"spec":{"workload":{"manifests":[]}}}`), try("PUT", works+in+"/manifestworks/work", `{}`),
		try("PATCH", works+in+"/manifestworks/work", `{"metadata":{"finalizers":[]}}`), try("PATCH", works+in+"/manifestworks/work/status", `{"status":{}}`),
		try("DELETE", works+in+"/manifestworks/work"), try("DELETE", works+in+"/manifestworks"), try("POST", works+in+"/manifestworks", `{}`), try("POST", works+own+"/manifestworks", `{}`),
		try("DELETE", works+own+"/manifestworks"),
		try("PUT", leasePath(v.ClusterName), `{}`), try("DELETE", leasePath(self)), try("PUT", "/apis/coordination.k8s.io/v1/namespaces/"+localhub.HubNamespace+"/leases/hub-apiserver-controllers", `{}`),
		try("POST", core+in+"/secrets", `{}`), try("POST", core+own+"/secrets", `{"metadata":{"name":"x"},"type":"kubernetes.io/service-account-token"}`),
		try("PATCH", accounts+in+"/managedserviceaccounts/account/status", `{"status":{}}`), try("POST", accounts+own+"/managedserviceaccounts", `{}`),
		try("POST", rbac+own+"/clusterpermissions", `{}`), try("DELETE", rbac+in+"/clusterpermissions/permission"), try("POST", rbac+in+"/clusternamespaces", `{}`),
		try("POST", search+in+"/inventories/"+v.ClusterName+"/sync", `{"clearAll":true}`), try("POST", search+own+"/inventories/"+v.ClusterName+"/sync", `{"clearAll":true}`).answered(400, 403, 404, 422),
		try("POST", search+in+"/inventories/"+self+"/sync", `{"clearAll":true}`),
		try("POST", search+"/searches", `{}`), try("POST", search+"/searchcompletions", `{}`), try("POST", search+"/searchschemas", `{}`), try("POST", search+"/graphql", `{}`),
		try("POST", core+in+"/events", `{}`),

		try("PUT", ownRole, `{}`), try("GET", ownRole), try("POST", kubeRBAC+"/clusterrolebindings", binding), try("POST", kubeRBAC+own+"/rolebindings", binding),
		try("DELETE", kubeRBAC+own+"/rolebindings"), try("DELETE", kubeRBAC+"/clusterrolebindings/open-cluster-management:managedcluster:"+v.ClusterName),
		try("PATCH", core+own, `{"metadata":{"labels":{"`+clusterv1.ClusterNameLabel+`":"`+v.ClusterName+`"}}}`), try("DELETE", core+own), try("GET", core+in), try("DELETE", core+in), try("GET", core+"/namespaces"),
		try("GET", core+"/namespaces/kube-system/configmaps/aws-auth"), try("PUT", core+"/namespaces/kube-system/configmaps/aws-auth", `{}`), try("POST", core+"/namespaces/kube-system/configmaps", `{}`),
		try("POST", core+"/namespaces/"+localhub.HubNamespace+"/serviceaccounts/"+localhub.ServerName+"/token", `{}`),
		try("POST", core+"/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token", `{}`), try("POST", core+own+"/serviceaccounts/default/token", `{}`),
		try("POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{}`), try("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{}`),
		try("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.work.open-cluster-management.io"), try("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", `{}`),
		try("GET", "/apis/proxy.open-cluster-management.io/v1beta1"+in+"/clusterstatuses/"+v.ClusterName+"/aggregator").answered(403, 404),
		try("GET", "/metrics"), try("GET", "/debug/pprof/heap"), try("GET", "/logs").answered(403, 404),
	}
	for _, path := range []string{
		works + in + "/manifestworks", works + "/manifestworks", works + in + "/manifestworks/work",
		"/apis/coordination.k8s.io/v1" + in + "/leases", "/apis/coordination.k8s.io/v1/leases", leasePath(v.ClusterName),
		core + in + "/secrets", core + in + "/secrets/secret", core + "/secrets", core + own + "/secrets", core + "/namespaces/" + localhub.HubNamespace + "/secrets", core + in + "/configmaps",
		accounts + in + "/managedserviceaccounts", accounts + "/managedserviceaccounts", rbac + in + "/clusterpermissions", rbac + in + "/clusternamespaces", rbac + "/clusternamespaces",
		search + "/fleetresources", search + in + "/inventories", search + in + "/inventories/" + v.ClusterName, search + own + "/inventories",
	} {
		attempts = append(attempts, try("GET", path), try("GET", path+"?watch=true&timeoutSeconds=1"))
	}
	return attempts
}

// onIdentity returns attempts to act as another user.
func (v *victim) onIdentity() []attempt {
	const look = clustersPath
	var attempts []attempt
	for _, header := range []http.Header{
		{"Impersonate-User": {"admin"}}, {"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}},
		{"Impersonate-User": {v.Username()}, "Impersonate-Group": v.Groups()}, {"Impersonate-User": {"system:apiserver"}},
		{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}, {"X-Remote-User": {"system:apiserver"}, "X-Remote-Group": {"system:masters"}},
		{"X-Remote-Extra-" + strings.ReplaceAll(acceptScopes, "/", "%2f"): {v.ClusterName}},
	} {
		attempts = append(attempts, try("GET", look).with(header), try("GET", look+"/"+v.ClusterName).with(header), try("GET", registrationsPath).with(header),
			try("PUT", registrationsPath+"/"+v.ClusterName+"/accept", `{"spec":{"accepted":false}}`).with(header))
	}
	return attempts
}

// TestHostileCluster checks that a registered cluster can neither read nor change another cluster, nor
// extend its own access.
func TestHostileCluster(t *testing.T) {
	h := members(t)
	const self = "hostile"
	v := h.newVictim(t, "hostile-victim")
	config := h.join(t, self)
	certified := h.join(t, "hostile-certified") // another cluster with a certificate
	before := h.record(t, self)

	attempts := slices.Concat(v.onLooks(self), v.onClusters(self), v.onNamespaces(self))
	t.Run("through the hub", func(t *testing.T) {
		v.refuses(t, config, slices.Concat(attempts, v.onIdentity()))
	})
	t.Run("past the hub", func(t *testing.T) {
		v.refuses(t, h.pastTheHub(t, config), slices.Concat(v.onLooks(self), v.onClusters(self), v.onIdentity()))
	})
	t.Run("missing objects get the same response", func(t *testing.T) {
		caller := newRawCaller(t, config)
		for _, path := range []string{
			clustersPath + "/NAME", registrationsPath + "/NAME", registrationsPath + "/NAME/irsa", worksPath("NAME"), worksPath("NAME") + "/work", leasePath("NAME"), "/api/v1/namespaces/NAME/secrets/secret",
		} {
			with := func(name string) string {
				code, text := caller.must(t, rawRequest{method: "GET", path: strings.ReplaceAll(path, "NAME", name)})
				return fmt.Sprint(code, strings.ReplaceAll(text, name, "NAME"))
			}
			if there, not := with(v.ClusterName), with("no-such-cluster"); there != not {
				t.Errorf("GET %s = %s for the victim, want the same as for a missing cluster: %s", path, there, not)
			}
		}
	})
	t.Run("its own ManagedCluster", func(t *testing.T) { v.ownObject(t, self, config) })
	t.Run("certificates", func(t *testing.T) { v.certificates(t, self, config) })
	t.Run("nothing has changed", func(t *testing.T) {
		v.unharmed(t)
		after := h.record(t, self)
		if framework.ToJSON(after.Spec) != framework.ToJSON(before.Spec) || after.Status.IRSA != nil {
			t.Errorf("registration of %s = %s, want the spec %s without an identity", self, framework.ToJSON(after), framework.ToJSON(before.Spec))
		}
		if code, _ := newRawCaller(t, certified).must(t, rawRequest{method: "GET", path: clustersPath + "/hostile-certified"}); code != 200 {
			t.Errorf("GET of hostile-certified by its agent = %d, want 200", code)
		}
	})
	t.Run("denied", func(t *testing.T) {
		h.deny(t, self)
		own := clustersPath + "/" + self
		v.refuses(t, config, slices.Concat([]attempt{
			try("PATCH", own, `{"spec":{"hubAcceptsClient":true}}`), try("PATCH", own, `[{"op":"replace","path":"/spec/hubAcceptsClient","value":true}]`).as(jsonPatch),
			try("PUT", own, framework.ToJSON(h.cluster(t, self))), try("PATCH", own+"/status", `{"status":{"version":{"kubernetes":"v1.0.0"}}}`),
			try("PATCH", own+"?fieldManager=x", `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","spec":{"hubAcceptsClient":true}}`).as(applyPatch),
			try("GET", worksPath(self)), try("GET", "/apis/authentication.open-cluster-management.io/v1beta1/namespaces/"+self+"/managedserviceaccounts"),
			try("GET", own).answered(200), try("GET", clustersPath+"?fieldSelector=metadata.name%3D"+self).answered(200),
		}, v.onLooks(self), v.onClusters(self)))
		if mc := h.cluster(t, self); mc.Spec.HubAcceptsClient || mc.Status.Acceptance.DecidedBy != "admin" {
			t.Errorf("ManagedCluster %s = %+v, want it denied by admin", self, mc)
		}
		framework.Eventually(t, "the denied cluster cannot create CertificateSigningRequests", func(ctx context.Context) error {
			return answers(ctx, newRawCaller(t, config), rawRequest{method: "POST", path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: "{}"}, 403)
		})
	})
	t.Run("deleted", func(t *testing.T) {
		if err := h.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), self, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "all objects of "+self+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, self) })
		v.refuses(t, config, slices.Concat([]attempt{
			try("GET", clustersPath+"/"+self), try("GET", worksPath(self)),
			try("POST", clustersPath, `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"`+self+`"}}`),
		}, attempts, v.onIdentity()))
		v.unharmed(t)
	})
}

// ownObject has a cluster write fields of its own ManagedCluster that it does not control.
func (v *victim) ownObject(t *testing.T, self string, config *rest.Config) {
	h, caller, own := v.hub, newRawCaller(t, config), clustersPath+"/"+self
	before := h.cluster(t, self)
	write := func(path, contentType, body string, want ...int) {
		t.Helper()
		code, text := caller.must(t, rawRequest{method: "PATCH", path: path, contentType: contentType, body: body})
		if !slices.Contains(want, code) {
			t.Errorf("PATCH with %s = %d, want one of %v: %.300s", body, code, want, text)
		}
		v.isNotIn(t, attempt{rawRequest: rawRequest{path: path, body: body}}, text)
	}
	// Writes of its requester, its identity in AWS and its finalizers have no effect.
	write(own, mergePatch, `{"metadata":{"annotations":{"`+registration.RequestedByAnnotation+`":"somebody","`+registration.EKSARNAnnotation+`":"`+v.Managed.String()+`","`+
		registration.ARNAnnotation+`":"`+v.Managed.String()+`","`+registration.RoleSuffixAnnotation+`":"`+v.Identity.Hash()+`"}}}`, 200)
	write(own, mergePatch, `{"metadata":{"annotations":null}}`, 200)
	write(own, mergePatch, `{"metadata":{"finalizers":null}}`, 200)
	write(own, jsonPatch, `[{"op":"replace","path":"/metadata/finalizers","value":["example.com/other"]}]`, 200)
	write(own, mergePatch, `{"metadata":{"finalizers":[]}}`, 200)
	// A change of its cluster set requires permission to join.
	write(own, mergePatch, `{"metadata":{"labels":{"cluster.open-cluster-management.io/clusterset":"payments"}}}`, 403)
	write(own, mergePatch, `{"metadata":{"uid":"`+string(h.cluster(t, v.ClusterName).UID)+`"}}`, 409, 422)
	write(own, mergePatch, `{"metadata":{"name":"`+v.ClusterName+`"}}`, 400, 409, 422)
	// The hub alone writes its decision and the condition HubAcceptedManagedCluster.
	write(own+"/status", mergePatch, `{"status":{"acceptance":{"accepted":true,"decidedBy":"somebody","decidedAt":"2020-01-01T00:00:00Z","requesters":["`+
		localhub.AgentUser(self)+`"]}}}`, 200)
	write(own+"/status", mergePatch, `{"status":{"conditions":[{"type":"HubAcceptedManagedCluster","status":"False","reason":"Hostile","message":"x","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`, 200)
	write(own+"/status", mergePatch, `{"spec":{"hubAcceptsClient":false},"metadata":{"finalizers":[],"labels":{"cluster.open-cluster-management.io/clusterset":"payments"}}}`, 200)
	write(own+"/status", mergePatch, `{"status":{"conditions":null,"acceptance":null}}`, 200)
	after := h.cluster(t, self)
	if !slices.Equal(after.Finalizers, before.Finalizers) || after.Annotations[registration.RequestedByAnnotation] != before.Annotations[registration.RequestedByAnnotation] ||
		framework.ToJSON(after.Labels) != framework.ToJSON(before.Labels) || framework.ToJSON(after.Status.Acceptance) != framework.ToJSON(before.Status.Acceptance) || !after.Spec.HubAcceptsClient || after.UID != before.UID {
		t.Errorf("ManagedCluster %s = %s\nwant no change of %s", self, framework.ToJSON(after), framework.ToJSON(before))
	}
	if err := h.hubAccepts(t.Context(), self); err != nil {
		t.Error(err)
	}
	// It may label objects in its own namespace with the name of another cluster. The label has no
	// effect.
	lease := framework.Must(h.HubClient.CoordinationV1().Leases(self).Get(t.Context(), registration.LeaseName, metav1.GetOptions{}))(t)
	lease.Labels = map[string]string{clusterv1.ClusterNameLabel: v.ClusterName}
	if code, text := caller.must(t, rawRequest{method: "PUT", path: leasePath(self), body: framework.ToJSON(lease)}); code != 200 {
		t.Errorf("PUT of its Lease = %d, want 200: %s", code, text)
	}
}

// certificates has a cluster request certificates that it may not have, with its own credentials. The
// hub approves none of them, even if one of the two clusters is accepted again.
func (v *victim) certificates(t *testing.T, self string, config *rest.Config) {
	h := v.hub
	const other, requests = "hostile-certified", "/apis/certificates.k8s.io/v1/certificatesigningrequests/"
	own, group := localhub.AgentUser(self), localhub.AgentGroup(self)
	bad := map[string]askedFor{}
	for what, subject := range map[string]pkix.Name{
		"a second agent":  agentSubject(self, "second"),
		"another cluster": agentSubject(other, "agent"),
		"the EKS cluster": agentSubject(v.ClusterName, "agent"),
		"its name in the group of another cluster":   {CommonName: own, Organization: []string{localhub.AgentGroup(other)}},
		"its name in two groups of clusters":         {CommonName: own, Organization: []string{group, localhub.AgentGroup(other)}},
		"its name in the group of an access entry":   {CommonName: own, Organization: []string{group, "open-cluster-management:" + other}},
		"its name in the group of nodes":             {CommonName: own, Organization: []string{group, "system:nodes"}},
		"a name with three parts":                    {CommonName: own + ":" + other, Organization: []string{group}},
		"a name with three parts of another cluster": {CommonName: localhub.AgentGroup(other) + ":" + self + ":agent", Organization: []string{group}},
		"another cluster within the name":            {CommonName: group + ":" + localhub.AgentGroup(other) + ":agent", Organization: []string{group}},
		"no name of an agent":                        {CommonName: group + ":", Organization: []string{group}},
		"the name of the group":                      {CommonName: group, Organization: []string{group}},
		"all clusters":                               {CommonName: localhub.AgentUser("managed-clusters"), Organization: []string{localhub.AgentGroup("managed-clusters")}},
		"no group":                                   {CommonName: own},
		"further attributes":                         {CommonName: own, Organization: []string{group}, OrganizationalUnit: []string{"system:masters"}},
		"the ServiceAccount of the server":           {CommonName: "system:serviceaccount:" + localhub.HubNamespace + ":" + localhub.ServerName, Organization: []string{"system:serviceaccounts"}},
		"the group of bootstrap tokens":              {CommonName: own, Organization: []string{"system:bootstrappers:managedcluster"}},
		"a name of an agent with a space":            {CommonName: group + ":agent ", Organization: []string{group}},
	} {
		for _, label := range []string{self, other} {
			bad[what+", labelled "+label] = askForCertificate(t, config, subject, labelledWith(label))
		}
	}
	change := func(what string, change func(*certificatesv1.CertificateSigningRequest)) {
		bad[what] = askForCertificate(t, config, agentSubject(self, "agent"), labelledWith(self), change)
	}
	change("usage as a server", func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
	})
	change("signer of kubelets", func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	})
	change("another signer", func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.SignerName = "example.com/client"
	})
	bad["its name, labelled "+other] = askForCertificate(t, config, agentSubject(self, "agent"), labelledWith(other))

	// Its own next request is approved. It is later than the others, so these are processed by then.
	next := askForCertificate(t, config, agentSubject(self, "agent"), labelledWith(self))
	renewed := h.issued(t, next)
	if code, _ := newRawCaller(t, renewed).must(t, rawRequest{method: "GET", path: clustersPath + "/" + self}); code != 200 {
		t.Errorf("GET of its ManagedCluster with the renewed certificate = %d, want 200", code)
	}
	// It can read its own requests. It cannot read the requests of other users, regardless of their
	// label.
	framework.Eventually(t, "the agent can read its own CertificateSigningRequest", func(ctx context.Context) error {
		return answers(ctx, newRawCaller(t, config), rawRequest{method: "GET", path: requests + next.name}, 200)
	})
	ofOther := askForCertificate(t, h.Hub.AdminConfig(), agentSubject(other, "agent"), labelledWith(self))
	v.refuses(t, config, []attempt{
		try("GET", requests+ofOther.name), try("GET", strings.TrimSuffix(requests, "/")), try("GET", strings.TrimSuffix(requests, "/")+"?watch=true"),
		try("GET", strings.TrimSuffix(requests, "/")+"?labelSelector="+clusterv1.ClusterNameLabel+"%3D"+self),
		try("GET", strings.TrimSuffix(requests, "/")+"?fieldSelector=metadata.name%3D"+ofOther.name),
	})
	// Kubernetes rejects requests with the group system:masters.
	for _, name := range []string{own, "admin"} {
		request := requestFor(t, pkix.Name{CommonName: name, Organization: []string{group, "system:masters"}}, labelledWith(self))
		v.refuses(t, config, []attempt{try("POST", strings.TrimSuffix(requests, "/"), framework.ToJSON(request))})
	}
	name := bad["another cluster, labelled "+other].name
	approval := framework.Must(h.HubClient.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{}))(t)
	approval.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "Hostile", Message: "x"}}
	v.refuses(t, config, []attempt{
		try("PUT", requests+name+"/approval", framework.ToJSON(approval)), try("PATCH", requests+name+"/approval", `{}`), try("PUT", requests+name+"/status", framework.ToJSON(approval)),
		try("PATCH", requests+name, `{"metadata":{"labels":{"`+clusterv1.ClusterNameLabel+`":"`+other+`"}}}`), try("DELETE", requests+name), try("DELETE", strings.TrimSuffix(requests, "/")),
	})
	for _, cluster := range []string{self, other} {
		h.accept(t, cluster)
	}
	// A request after the decisions is approved, so the earlier ones are processed again by then.
	h.issued(t, askForCertificate(t, renewed, agentSubject(self, "agent"), labelledWith(self)))
	for what, asked := range bad {
		request, err := h.HubClient.CertificatesV1().CertificateSigningRequests().Get(t.Context(), asked.name, metav1.GetOptions{})
		if err != nil || len(request.Status.Certificate) > 0 || slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved
		}) {
			t.Errorf("CertificateSigningRequest for %s = %+v, %v, want no approval", what, request.Status, err)
		}
	}
}

// TestCleanupDespiteRemovedFinalizer checks that all objects of a cluster are deleted, even if the
// cluster itself or an administrator removes the finalizers of its ManagedCluster.
func TestCleanupDespiteRemovedFinalizer(t *testing.T) {
	h := members(t)
	clusters := h.OCM.ClusterV1().ManagedClusters()
	for name, strip := range map[string]func(t *testing.T, desired irsa.Desired){
		"removed-by-agent": func(t *testing.T, desired irsa.Desired) {
			code, text := newRawCaller(t, h.entryConfig(t, desired)).must(t, rawRequest{
				method: "PATCH", path: clustersPath + "/" + desired.ClusterName, contentType: mergePatch, body: `{"metadata":{"finalizers":null}}`,
			})
			if code != 200 || !slices.Contains(h.cluster(t, desired.ClusterName).Finalizers, clusterv1.ManagedClusterFinalizer) {
				t.Errorf("PATCH that removes the finalizers = %d: %s, want 200 and the finalizers kept", code, text)
			}
			if err := clusters.Delete(t.Context(), desired.ClusterName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"removed-by-admin": func(t *testing.T, desired irsa.Desired) {
			// A second finalizer keeps the deleted ManagedCluster until it is removed.
			framework.Must(clusters.Patch(t.Context(), desired.ClusterName, types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/hold"}]`), metav1.PatchOptions{}))(t)
			if err := clusters.Delete(t.Context(), desired.ClusterName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "the finalizers of "+desired.ClusterName+" are removed", func(ctx context.Context) error {
				_, err := clusters.Patch(ctx, desired.ClusterName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			desired := h.joinEKS(t, name)
			strip(t, desired)
			framework.Eventually(t, "the role and all objects of "+name+" are deleted", func(ctx context.Context) error {
				if h.hasRole(desired) {
					return errors.New("AWS still has its role")
				}
				return h.isGone(ctx, name)
			})
			// Another cluster can claim the released identity.
			heir := claiming(desired)
			heir.Name += "-heir"
			h.request(t, heir)
		})
	}
}
