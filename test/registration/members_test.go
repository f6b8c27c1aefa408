package registration

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	clustersPath      = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	registrationsPath = "/apis/register.open-cluster-management.io/v1alpha1/managedclusters"
)

// acceptScopes is the key in the extra of a user under which the authorization webhook of the hub finds
// the clusters that the user may accept.
const acceptScopes = "example.com/accept"

// memberHub is the hub of the tests of permissions. Clusters join it in the documented way. Each test
// uses its own clusters and does not delete them. These clusters do not change on their own, so AWS
// receives only the calls that a test causes.
var memberHub = sync.OnceValues(func() (*awsHub, error) {
	dir, err := framework.TempDir()
	if err != nil {
		return nil, err
	}
	h, stop, err := startMemberHub(context.Background(), filepath.Join(dir, "members"))
	if err == nil {
		framework.StopAtEnd(stop)
	}
	return h, err
})

func members(t *testing.T) *awsHub {
	t.Helper()
	framework.UseShared(t)
	return framework.Must(memberHub())(t)
}

func startMemberHub(ctx context.Context, dir string) (_ *awsHub, _ func(context.Context) error, err error) {
	aws, err := fakeaws.New(fakeaws.Options{Region: faultsRegion})
	if err != nil {
		return nil, nil, err
	}
	webhook := httptest.NewServer(http.HandlerFunc(reviewExtra))
	h := &awsHub{aws: aws, arn: irsa.ARN{Partition: "aws", Region: faultsRegion, AccountID: faultsHubAccount, ClusterName: "hub"}}
	stop := func(ctx context.Context) error {
		var err error
		if h.fleet != nil {
			err = h.Kill()
		}
		webhook.Close()
		return errors.Join(err, aws.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := aws.AddCluster(h.arn.String(), fakeaws.ModeAPI); err != nil {
		return nil, nil, err
	}
	key, err := aws.AddUser(faultsHubAccount, "server", irsa.CreatorAccessPolicy(h.arn).JSON(), irsa.CreatorMappingPolicy(h.arn).JSON())
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	config := filepath.Join(dir, "authorization.kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"webhook": {Server: webhook.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"hub": {}},
		Contexts:       map[string]*clientcmdapi.Context{"webhook": {Cluster: "webhook", AuthInfo: "hub"}},
		CurrentContext: "webhook",
	}, config); err != nil {
		return nil, nil, err
	}
	inner, err := localhub.NewFleet(localhub.FleetOptions{Dir: dir, NoFsync: true,
		HubArgs:       []string{"--authorization-mode=Webhook", "--authorization-webhook-version=v1", "--authorization-webhook-config-file=" + config},
		APIServerArgs: []string{"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + h.arn.String()},
	})
	if err != nil {
		return nil, nil, err
	}
	inner.Server.Env = aws.Env(key)
	if err := inner.Start(ctx); err != nil {
		return nil, nil, err
	}
	h.fleet = &fleet{&framework.Fleet{Fleet: inner, Kubeconfig: filepath.Join(dir, "hub-admin.kubeconfig")}}
	if err := h.Connect(ctx); err != nil {
		return nil, nil, err
	}
	roles, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", "hub"))
	if err != nil {
		return nil, nil, err
	}
	return h, stop, h.Hub.Apply(ctx, roles...)
}

// reviewExtra serves SubjectAccessReviews that allow users to accept the clusters in their extra.
func reviewExtra(rw http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	a := review.Spec.ResourceAttributes
	allowed := a != nil && a.Group == registerv1alpha1.GroupName && a.Resource == "managedclusters" && a.Subresource == "accept" && a.Verb == "update" &&
		slices.Contains(review.Spec.Extra[acceptScopes], a.Name)
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}
	rw.Header().Set("Content-Type", "application/json")
	// The error is ignored, because a stopped hub needs no response.
	_ = json.NewEncoder(rw).Encode(review)
}

// bootstrap returns a configuration with a token of the bootstrap ServiceAccount of clusteradm init.
func (h *awsHub) bootstrap(t *testing.T) *rest.Config {
	t.Helper()
	return framework.Must(h.Hub.ServiceAccountConfig(t.Context(), "open-cluster-management", "agent-registration-bootstrap"))(t)
}

// request creates a ManagedCluster with the bootstrap identity, as a cluster does to join.
func (h *awsHub) request(t *testing.T, mc *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	t.Helper()
	client := framework.Must(versioned.NewForConfig(h.bootstrap(t)))(t)
	return framework.Must(client.ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{}))(t)
}

func (h *awsHub) accept(t *testing.T, name string) {
	t.Helper()
	if err := h.decide(t.Context(), name, true); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ManagedCluster "+name+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, name) })
}

func (h *awsHub) deny(t *testing.T, name string) {
	t.Helper()
	if err := h.decide(t.Context(), name, false); err != nil {
		t.Fatal(err)
	}
}

// join has a cluster join with a certificate, and returns the credentials of its agent.
func (h *awsHub) join(t *testing.T, name string) *rest.Config {
	t.Helper()
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	asked := askForCertificate(t, h.bootstrap(t), agentSubject(name, "agent"), labelledWith(name))
	h.accept(t, name)
	return h.issued(t, asked)
}

// joinEKS has a cluster join with its IAM identity, and returns the identity.
func (h *awsHub) joinEKS(t *testing.T, name string) irsa.Desired {
	t.Helper()
	// The ARN must not contain the name on the hub: tests search for this name in responses that may
	// contain the ARN.
	desired := h.desired(name, fmt.Sprintf("eks-%x", name))
	h.request(t, claiming(desired))
	h.accept(t, name)
	if err := h.inAWS(desired); err != nil {
		t.Fatal(err)
	}
	return desired
}

// entryConfig returns the access of the agent of an EKS cluster: the user and the groups of its access
// entry, as the token webhook of EKS returns them.
func (h *awsHub) entryConfig(t *testing.T, desired irsa.Desired) *rest.Config {
	t.Helper()
	return framework.Must(h.Hub.UserConfig(desired.Username(), desired.Groups()...))(t)
}

// pastTheHub returns a configuration that connects to the server directly.
func (h *awsHub) pastTheHub(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	direct := rest.CopyConfig(config)
	direct.Host, direct.CAData = fmt.Sprintf("https://127.0.0.1:%d", h.Server.Port), framework.Must(h.Server.CABundle())(t)
	return direct
}

// agentSubject returns the subject of the certificate of an agent.
func agentSubject(cluster, agent string, further ...string) pkix.Name {
	own := localhub.AgentGroup(cluster)
	return pkix.Name{CommonName: own + ":" + agent, Organization: append([]string{own}, further...)}
}

func labelledWith(cluster string) func(*certificatesv1.CertificateSigningRequest) {
	return func(r *certificatesv1.CertificateSigningRequest) {
		r.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	}
}

// askedFor is the name of a CertificateSigningRequest, and its key.
type askedFor struct {
	name string
	key  []byte
}

func askForCertificate(t *testing.T, who *rest.Config, subject pkix.Name, change ...func(*certificatesv1.CertificateSigningRequest)) askedFor {
	t.Helper()
	key := framework.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	encoded := framework.Must(keyutil.MarshalPrivateKeyToPEM(key))(t)
	client := framework.Must(kubernetes.NewForConfig(who))(t)
	request := framework.Must(client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), requestWith(t, key, subject, change...), metav1.CreateOptions{}))(t)
	return askedFor{request.Name, encoded}
}

// requestFor returns a CertificateSigningRequest and discards its key.
func requestFor(t *testing.T, subject pkix.Name, change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return requestWith(t, framework.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t), subject, change...)
}

func requestWith(t *testing.T, key *ecdsa.PrivateKey, subject pkix.Name, change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	content := framework.Must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key))(t)
	request := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
	for _, change := range change {
		change(request)
	}
	return request
}

// issued waits until a certificate is issued, and returns a configuration that uses it.
func (h *awsHub) issued(t *testing.T, asked askedFor) *rest.Config {
	t.Helper()
	config := h.Hub.AnonymousConfig()
	framework.Eventually(t, "CertificateSigningRequest "+asked.name+" has a certificate", func(ctx context.Context) error {
		request, err := h.HubClient.CertificatesV1().CertificateSigningRequests().Get(ctx, asked.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(request.Status.Certificate) == 0 {
			return fmt.Errorf("conditions = %v", request.Status.Conditions)
		}
		config.CertData, config.KeyData = request.Status.Certificate, asked.key
		return nil
	})
	return config
}

// undecided fails the test if a CertificateSigningRequest is approved or denied.
func (h *awsHub) undecided(t *testing.T, what, name string) {
	t.Helper()
	request := framework.Must(h.HubClient.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{}))(t)
	if len(request.Status.Certificate) > 0 || len(request.Status.Conditions) > 0 {
		t.Errorf("CertificateSigningRequest for %s has conditions %v and a certificate of %d bytes, want it pending", what, request.Status.Conditions, len(request.Status.Certificate))
	}
}

// callsFor returns the AWS operations since the last reset whose parameters contain the hash of an
// identity.
func (h *awsHub) callsFor(desired irsa.Desired) []string {
	var out []string
	for _, call := range h.aws.Calls() {
		for _, value := range call.Parameters {
			if strings.Contains(value, desired.Identity.Hash()) {
				out = append(out, call.Operation)
				break
			}
		}
	}
	return out
}

// record returns the registration of a cluster.
func (h *awsHub) record(t *testing.T, name string) *registerv1alpha1.ManagedClusterRegistration {
	t.Helper()
	return framework.Must(h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(t.Context(), name, metav1.GetOptions{}))(t)
}

func (h *awsHub) cluster(t *testing.T, name string) *clusterv1.ManagedCluster {
	t.Helper()
	return framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// rawCaller sends requests and returns responses without the conversions of a typed client.
type rawCaller struct {
	host   string
	client *http.Client
}

func newRawCaller(t *testing.T, config *rest.Config) *rawCaller {
	t.Helper()
	return &rawCaller{config.Host, framework.Must(rest.HTTPClientFor(config))(t)}
}

// rawRequest is a request. If contentType is empty, the body is JSON.
type rawRequest struct {
	method, path, contentType, body string
	header                          http.Header
}

func (r rawRequest) String() string { return r.method + " " + r.path }

// do sends a request, and returns the status code and the body of the response.
func (c *rawCaller) do(ctx context.Context, r rawRequest) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, r.method, c.host+r.path, bytes.NewReader([]byte(r.body)))
	if err != nil {
		return 0, "", err
	}
	for key, values := range r.header {
		request.Header[key] = values
	}
	if r.contentType == "" {
		r.contentType = "application/json"
	}
	if r.body != "" {
		request.Header.Set("Content-Type", r.contentType)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), errors.Join(err, response.Body.Close())
}

func (c *rawCaller) must(t *testing.T, r rawRequest) (int, string) {
	t.Helper()
	code, text, err := c.do(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	return code, text
}

const (
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// leasePath returns the path of the Lease of a cluster.
func leasePath(cluster string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + cluster + "/leases/" + registration.LeaseName
}
