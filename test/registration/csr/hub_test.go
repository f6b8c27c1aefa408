package csr_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

var registrations = registerv1alpha1.SchemeGroupVersion.WithResource("managedclusters")

// records stores registrations where the informers of a fake clientset find them.
type records struct {
	registration.Records
	mu      sync.Mutex
	tracker clienttesting.ObjectTracker
}

func (r *records) Get(_ context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error) {
	object, err := r.tracker.Get(registrations, "", cluster)
	if err != nil {
		return nil, err
	}
	record, ok := object.(*registerv1alpha1.ManagedClusterRegistration)
	if !ok {
		return nil, fmt.Errorf("type of registration %s = %T, want *ManagedClusterRegistration", cluster, object)
	}
	return record.DeepCopy(), nil
}

func (r *records) Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := change(record); err != nil {
		return nil, err
	}
	return record, r.tracker.Update(registrations, record, "")
}

// hub is a real hub with an approver. Its ManagedClusters and registrations are stored in a fake
// clientset.
type hub struct {
	*localhub.Cluster
	admin    kubernetes.Interface
	server   *fake.Clientset
	records  *records
	approver *csr.Approver
}

func startHub(t *testing.T, autoApproved ...string) *hub {
	t.Helper()
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub"})
	admin, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{Cluster: cluster, admin: admin, server: fake.NewSimpleClientset()}
	h.records = &records{tracker: h.server.Tracker()}

	hubInformers := informers.NewSharedInformerFactoryWithOptions(admin, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = clusterv1.ClusterNameLabel
	}))
	serverInformers := externalversions.NewSharedInformerFactory(h.server, 0)
	h.approver, err = csr.NewApprover(csr.Options{
		Hub: admin, CSRs: hubInformers.Certificates().V1().CertificateSigningRequests(),
		Clusters: h.server.ClusterV1(), ClusterInformer: serverInformers.Cluster().V1().ManagedClusters(),
		Records: h.records, Registrations: serverInformers.Register().V1alpha1().ManagedClusterRegistrations(),
		AutoApproved: autoApproved, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		hubInformers.Shutdown()
		serverInformers.Shutdown()
	})
	hubInformers.Start(ctx.Done())
	serverInformers.Start(ctx.Done())
	running.Go(func() { h.approver.Run(ctx) })

	h.grant(t, "bootstrap", []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}}, rbacv1.PolicyRule{
		APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"},
	})
	return h
}

func (h *hub) grant(t *testing.T, name string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "test:" + name}
	if _, err := h.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// register creates a ManagedCluster and its registration.
func (h *hub) register(t *testing.T, name, requestedBy string) {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	if _, err := h.server.ClusterV1().ManagedClusters().Create(t.Context(), cluster, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	record := &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-record-" + name), CreationTimestamp: metav1.Now().Rfc3339Copy()},
		Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			ManagedClusterUID: cluster.UID, Driver: registerv1alpha1.DriverCSR, RequestedBy: registerv1alpha1.Requester{Username: requestedBy},
		},
	}
	if err := h.server.Tracker().Create(registrations, record, ""); err != nil {
		t.Fatal(err)
	}
}

// decide accepts or denies a cluster. The decision has the time at.
func (h *hub) decide(t *testing.T, name string, accepted bool, at time.Time) {
	t.Helper()
	clusters := h.server.ClusterV1().ManagedClusters()
	cluster, err := clusters.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster = cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = accepted
	cluster.Status.Acceptance = &clusterv1.Acceptance{Accepted: accepted, DecidedBy: "admin", DecidedAt: metav1.NewTime(at)}
	if _, err := clusters.Update(t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) agents(t *testing.T, name string) []string {
	t.Helper()
	record, err := h.records.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if record.Status.CSR == nil {
		return nil
	}
	return record.Status.CSR.Agents
}

// asked is the name of a CertificateSigningRequest, and its key.
type asked struct {
	name string
	key  []byte
}

// ask requests a certificate as upstream agents do.
func (h *hub) ask(t *testing.T, who *rest.Config, cluster, agent string) asked {
	t.Helper()
	key := newKey(t)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(who)
	if err != nil {
		t.Fatal(err)
	}
	request := newRequest(cluster, encode(t, key, named(identityPrefix+cluster+":"+agent, identityPrefix+cluster, allGroup)))
	request, err = client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return asked{request.Name, keyPEM}
}

func (h *hub) request(t *testing.T, a asked) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	request, err := h.admin.CertificatesV1().CertificateSigningRequests().Get(t.Context(), a.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// byHand is the message of an approval by an administrator.
const byHand = "by hand"

// issued waits until a request has a certificate, and returns a configuration that uses it. The
// message of the approval must contain because.
func (h *hub) issued(t *testing.T, a asked, because string) *rest.Config {
	t.Helper()
	config := h.AnonymousConfig()
	await.Eventually(t, "CertificateSigningRequest "+a.name+" has a certificate", func() error {
		request := h.request(t, a)
		if len(request.Status.Certificate) == 0 {
			return fmt.Errorf("conditions = %v", request.Status.Conditions)
		}
		config.CertData, config.KeyData = request.Status.Certificate, a.key
		if approval := condition(request, certificatesv1.CertificateApproved); approval == nil || approval.Reason != csr.ReasonAutoApproved && because != byHand || !strings.Contains(approval.Message, because) {
			t.Fatalf("approval = %v, want reason %s and a message with %q", approval, csr.ReasonAutoApproved, because)
		}
		return nil
	})
	return config
}

// stillPending fails the test if the approver approves or denies a request.
func (h *hub) stillPending(t *testing.T, cluster string, a asked) {
	t.Helper()
	names, err := h.approver.ApprovePending(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if request := h.request(t, a); !isPending(request) || slices.Contains(names, a.name) {
		t.Fatalf("conditions of CertificateSigningRequest %s = %v, want it pending", a.name, request.Status.Conditions)
	}
}

func (h *hub) expectDenied(t *testing.T, a asked, reason string) {
	t.Helper()
	await.Eventually(t, "CertificateSigningRequest "+a.name+" is denied for "+reason, func() error {
		request := h.request(t, a)
		if denial := condition(request, certificatesv1.CertificateDenied); denial == nil || denial.Reason != reason || denial.Message == "" {
			return fmt.Errorf("conditions = %v", request.Status.Conditions)
		}
		return nil
	})
}

func expectUser(t *testing.T, config *rest.Config, name string, groups ...string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := self.Status.UserInfo
	slices.Sort(user.Groups)
	groups = append(groups, "system:authenticated")
	slices.Sort(groups)
	if user.Username != name || !slices.Equal(user.Groups, groups) {
		t.Errorf("user of the certificate = %s in %q, want %s in %q", user.Username, user.Groups, name, groups)
	}
}
