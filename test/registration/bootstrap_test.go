package registration

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestBootstrapReadsByName checks that a bootstrap identity, which all clusters share, reads ManagedClusters and
// CertificateSigningRequests by their names only.
func TestBootstrapReadsByName(t *testing.T) {
	h := members(t)
	v := h.newVictim(t, "byname-victim")
	const own, requestsPath = "byname-own", "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	token := framework.Must(h.Hub.UserConfig("system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:managedcluster"))(t)
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: own}})
	for _, config := range []*rest.Config{token, h.bootstrap(t)} {
		asked := askForCertificate(t, config, agentSubject(own, "agent"), labelledWith(own))
		var attempts []attempt
		for path, name := range map[string]string{clustersPath: own, requestsPath: asked.name} {
			for _, query := range []string{
				"", "?limit=1", "?resourceVersion=0", "?watch=true&timeoutSeconds=1", "?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
				"?fieldSelector=metadata.name%3D" + name, "?fieldSelector=metadata.name%3D" + v.ClusterName, "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D" + name,
				"?labelSelector=open-cluster-management.io%2Fcluster-name%3D" + own,
			} {
				attempts = append(attempts, try("GET", path+query))
			}
			attempts = append(attempts, try("GET", path+"/"+name).answered(http.StatusOK), try("GET", path+"/byname-absent").answered(http.StatusNotFound))
		}
		v.refuses(t, config, attempts)
	}
}

// TestBootstrapCannot checks that a bootstrap identity can request ManagedClusters and their first
// certificates, and that all its other requests are rejected.
func TestBootstrapCannot(t *testing.T) {
	h := members(t)
	v := h.newVictim(t, "boot-victim")
	// The other clusters join with another bootstrap identity.
	token := framework.Must(h.Hub.UserConfig("system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:managedcluster"))(t)
	client := framework.Must(versioned.NewForConfig(token))(t)
	const self, accepted, taken = "boot-own", "boot-accepted", "boot-others"
	for _, name := range []string{self, accepted} {
		framework.Must(client.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: taken}})
	certified := h.join(t, "boot-certified")
	h.accept(t, accepted)

	t.Run("read or write existing objects", func(t *testing.T) {
		attempts := slices.DeleteFunc(slices.Concat(v.onClusters(self), v.onNamespaces(self)), func(a attempt) bool {
			return a.method == http.MethodPost && strings.HasSuffix(a.path, "/irsa")
		})
		for _, a := range v.onIdentity() {
			if a.header.Get("Impersonate-User") != "" {
				attempts = append(attempts, a)
			}
		}
		for _, config := range []*rest.Config{token, h.bootstrap(t)} {
			v.refuses(t, config, attempts)
		}
	})
	t.Run("accept", func(t *testing.T) {
		mc := `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"boot-new"},"spec":{"hubAcceptsClient":true}}`
		v.refuses(t, token, []attempt{
			try("POST", clustersPath, mc), try("POST", clustersPath+"?dryRun=All", mc), try("PUT", clustersPath+"/boot-new", mc),
			try("PATCH", clustersPath+"/boot-new?fieldManager=x&force=true", mc).as(applyPatch),
			try("PATCH", clustersPath+"/"+self, `{"spec":{"hubAcceptsClient":true}}`), try("PATCH", clustersPath+"/"+self, `{"metadata":{"labels":{"x":"y"}}}`),
			try("PATCH", clustersPath+"/"+self+"/status", `{"status":{"conditions":[]}}`), try("DELETE", clustersPath+"/"+self),
		})
		forged := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
			Name: "boot-forged", Annotations: map[string]string{registration.RequestedByAnnotation: "admin"},
		}}
		forged.Status.Acceptance = &clusterv1.Acceptance{Accepted: true, DecidedBy: "admin", DecidedAt: metav1.Now()}
		forged.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue, Reason: "Forged", LastTransitionTime: metav1.Now()}}
		framework.Must(client.ClusterV1().ManagedClusters().Create(t.Context(), forged, metav1.CreateOptions{}))(t)
		mc1 := h.cluster(t, "boot-forged")
		if mc1.Status.Acceptance != nil || len(mc1.Status.Conditions) > 0 || mc1.Annotations[registration.RequestedByAnnotation] != "system:bootstrap:abcdef" ||
			h.record(t, "boot-forged").Spec.RequestedBy.Username != "system:bootstrap:abcdef" {
			t.Errorf("ManagedCluster boot-forged = %s, want no forged status and the requester system:bootstrap:abcdef", framework.ToJSON(mc1))
		}
	})
	t.Run("choose a reserved name or a cluster set", func(t *testing.T) {
		for _, name := range []string{"default", "kube-system", "open-cluster-management", localhub.HubNamespace, "registration", "work", "serviceaccounts", "managed-clusters"} {
			v.refuses(t, token, []attempt{try("POST", clustersPath,
				`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"`+name+`"}}`).answered(422)})
		}
		v.refuses(t, token, []attempt{
			try("POST", clustersPath, `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"boot-set","labels":{"cluster.open-cluster-management.io/clusterset":"payments"}}}`),
			try("POST", clustersPath, `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"`+v.ClusterName+`"}}`).answered(409),
		})
	})
	t.Run("claim a foreign cluster or identity", func(t *testing.T) {
		const free = "arn:aws:eks:us-west-2:444455556666:cluster/boot-free"
		claim := func(name, arn string) attempt {
			return try("POST", registrationsPath+"/"+name+"/irsa", `{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterIRSA","spec":{"managedClusterARN":"`+arn+`"}}`)
		}
		v.refuses(t, token, []attempt{
			claim(taken, free), claim(v.ClusterName, free), claim(v.ClusterName, v.Managed.String()), claim("boot-certified", free), claim("no-such-cluster", free).answered(404),
			claim(accepted, free).answered(409), claim(self, v.Managed.String()).answered(409), claim(self, strings.Replace(v.Managed.String(), "us-west-2", "eu-west-1", 1)).answered(409),
			try("GET", registrationsPath+"/"+taken+"/irsa"), try("DELETE", registrationsPath+"/"+v.ClusterName+"/irsa"),
		})
		for _, name := range []string{self, taken, accepted} {
			if record := h.record(t, name); record.Spec.IRSA != nil || record.Spec.Driver != registerv1alpha1.DriverCSR {
				t.Errorf("registration of %s = %s, want no claim", name, framework.ToJSON(record.Spec))
			}
		}
	})
	t.Run("get certificates of other clusters", func(t *testing.T) {
		// The times of decisions and requests have a resolution of one second.
		framework.Eventually(t, "the second of the decision has passed", func(ctx context.Context) error {
			mc, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, "boot-certified", metav1.GetOptions{})
			if err == nil && mc.Status.Acceptance.DecidedAt.Truncate(time.Second).Equal(time.Now().Truncate(time.Second)) {
				return errors.New("decidedAt is in the current second")
			}
			return err
		})
		requests := map[string]askedFor{}
		for what, name := range map[string]string{"an EKS cluster": v.ClusterName, "a cluster with an agent": "boot-certified", "a cluster that is not accepted": taken} {
			requests[what] = askForCertificate(t, token, agentSubject(name, "agent"), labelledWith(name))
		}
		requests["the agent of another cluster"] = askForCertificate(t, token, agentSubject("boot-certified", "agent"), labelledWith(self))
		requests["an agent of two clusters"] = askForCertificate(t, token, agentSubject(self, "agent", localhub.AgentGroup("boot-certified")), labelledWith(self))
		// Its own first request is approved. It is later than the others, so these are processed by
		// then.
		h.issued(t, askForCertificate(t, token, agentSubject(accepted, "agent"), labelledWith(accepted)))
		h.issued(t, askForCertificate(t, certified, agentSubject("boot-certified", "agent"), labelledWith("boot-certified")))
		for what, asked := range requests {
			h.undecided(t, what, asked.name)
		}
		const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/"
		v.refuses(t, token, []attempt{
			try("PUT", path+requests["an EKS cluster"].name+"/approval", `{}`), try("PATCH", path+requests["an EKS cluster"].name+"/approval", `{}`), try("DELETE", path+requests["an EKS cluster"].name),
		})
	})
	v.unharmed(t)
	if _, err := h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), "boot-new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get ManagedCluster boot-new = %v, want NotFound", err)
	}
}
