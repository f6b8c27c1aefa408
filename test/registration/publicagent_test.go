package registration

import (
	"context"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

var managedClusters = clusterv1.SchemeGroupVersion.WithResource("managedclusters")

// publicRegistration acts as the upstream registration agent, work agent and operator of a cluster. It
// makes their calls with their options, and reads only the data of the hub that they read.
type publicRegistration struct {
	cluster string
	hub     *localhub.Cluster
	// bootstrap is the bootstrap identity.
	bootstrap *publicClient
	// own is the identity of the cluster after its registration.
	own *publicClient
}

// publicClient contains clients of the hub with one identity.
type publicClient struct {
	config  *rest.Config
	kube    *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
}

func newPublicClient(t *testing.T, config *rest.Config) *publicClient {
	t.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	return &publicClient{config: config, kube: framework.Must(kubernetes.NewForConfig(config))(t), dynamic: framework.Must(dynamic.NewForConfig(config))(t)}
}

func (c *publicClient) clusters() dynamic.ResourceInterface {
	return c.dynamic.Resource(managedClusters)
}

// bootstrapAccount returns the ServiceAccount identity of the bootstrap kubeconfig.
func bootstrapAccount(t *testing.T, hub *localhub.Cluster) *rest.Config {
	t.Helper()
	return framework.Must(hub.ServiceAccountConfig(t.Context(), "open-cluster-management", "agent-registration-bootstrap"))(t)
}

// bootstrapToken returns the identity of a bootstrap token of the hub.
func bootstrapToken(t *testing.T, hub *localhub.Cluster) *rest.Config {
	t.Helper()
	return framework.Must(hub.UserConfig("system:bootstrap:abcdef", "system:bootstrappers:managedcluster", "system:bootstrappers"))(t)
}

func newPublicRegistration(t *testing.T, hub *localhub.Cluster, cluster string, bootstrap *rest.Config) *publicRegistration {
	t.Helper()
	p := &publicRegistration{cluster: cluster, hub: hub, bootstrap: newPublicClient(t, bootstrap)}
	// Administrators create these bindings for upstream agents, as docs/registration.md describes.
	framework.Must(p.admin(t).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "upstream-bootstrap:" + cluster},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:registration:upstream-bootstrap"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: "open-cluster-management", Name: "agent-registration-bootstrap"},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers:managedcluster"},
		},
	}, metav1.CreateOptions{}))(t)
	framework.Eventually(t, "the bootstrap identity may list", func(ctx context.Context) error {
		_, err := p.bootstrap.clusters().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "upstream-agent:" + cluster},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:registration:upstream-agent"},
	}
	for _, group := range clusterv1.AgentGroups(cluster) {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	framework.Must(p.admin(t).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	return p
}

func (p *publicRegistration) admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return framework.Must(kubernetes.NewForConfig(p.hub.AdminConfig()))(t)
}

// review is a group of permissions that an operator checks with SelfSubjectAccessReviews.
type review struct {
	group, resource, name, namespace, verbs string
}

// mayAll checks that all reviews are allowed. If one is denied, the operator reports a degraded
// connection and an agent does not select the hub.
func (c *publicClient) mayAll(t *testing.T, reviews []review) {
	t.Helper()
	for _, r := range reviews {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		for _, verb := range strings.Fields(r.verbs) {
			answer := framework.Must(c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name, Namespace: r.namespace,
				}},
			}, metav1.CreateOptions{}))(t)
			if !answer.Status.Allowed {
				t.Errorf("review of %s %s in group %q = denied: %s, want allowed", verb, r.resource, r.group, answer.Status.Reason)
			}
		}
	}
}

const (
	certificatesGroup = "certificates.k8s.io"
	requestsResource  = "certificatesigningrequests"
)

// begin makes the requests of the agent before the cluster is accepted: it creates the
// ManagedCluster if it does not exist, and then watches it.
func (p *publicRegistration) begin(t *testing.T, annotations map[string]string) (watched func() *unstructured.Unstructured) {
	t.Helper()
	p.bootstrap.mayAll(t, []review{
		{group: clusterv1.GroupName, resource: "managedclusters", verbs: "create get list watch"},
		{group: certificatesGroup, resource: requestsResource, verbs: "create get list watch"},
	})
	// The upstream clusteradm reads the CA bundle of the hub from these ConfigMaps.
	_, err := p.bootstrap.kube.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.bootstrap.kube.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	}
	if err != nil {
		t.Errorf("Get(ConfigMap with the CA bundle of the hub) = %v, want nil", err)
	}

	clientConfigs := []any{map[string]any{"url": "https://" + p.cluster + ".example:6443", "caBundle": base64.StdEncoding.EncodeToString(p.bootstrap.config.CAData)}}
	existing, err := p.bootstrap.clusters().Get(t.Context(), p.cluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		created := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.SchemeGroupVersion.String(), "kind": "ManagedCluster",
			"metadata": map[string]any{"name": p.cluster, "creationTimestamp": nil},
			"spec":     map[string]any{"hubAcceptsClient": false, "managedClusterClientConfigs": clientConfigs},
			"status":   map[string]any{"version": map[string]any{}},
		}}
		created.SetAnnotations(annotations)
		created = framework.Must(p.bootstrap.clusters().Create(t.Context(), created, metav1.CreateOptions{}))(t)
		for key, value := range annotations {
			if created.GetAnnotations()[key] != value {
				t.Errorf("annotation %s = %q, want %q", key, created.GetAnnotations()[key], value)
			}
		}
	case err != nil:
		t.Fatal(err)
	default:
		// The agent tries to add its URL, and continues if the server returns Forbidden.
		if err := unstructured.SetNestedSlice(existing.Object, clientConfigs, "spec", "managedClusterClientConfigs"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.bootstrap.clusters().Update(t.Context(), existing, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("Update(ManagedCluster) with the bootstrap identity = %v, want Forbidden", err)
		}
	}
	return p.bootstrap.watch(t, p.cluster)
}

// watch starts an informer for one ManagedCluster. It returns a function that returns a copy of the
// cached object, or nil if the object does not exist.
func (c *publicClient) watch(t *testing.T, cluster string) func() *unstructured.Unstructured {
	t.Helper()
	ofName := func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + cluster }
	// Agents of releases without streaming lists send a list and then a watch. Such a list comes from the cache of the API
	// server, which may not contain a new object yet.
	options := metav1.ListOptions{ResourceVersion: "0"}
	ofName(&options)
	framework.Eventually(t, "a list contains ManagedCluster "+cluster+" only", func(ctx context.Context) error {
		list, err := c.clusters().List(ctx, options)
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].GetName() != cluster {
			return fmt.Errorf("the list has %d items", len(list.Items))
		}
		options.ResourceVersion, options.AllowWatchBookmarks = list.GetResourceVersion(), true
		return nil
	})
	framework.Must(c.clusters().Watch(t.Context(), options))(t).Stop()

	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, metav1.NamespaceAll, ofName)
	informer := factory.ForResource(managedClusters).Informer()
	runInformers(t, func(stop <-chan struct{}) { factory.Start(stop) }, factory.Shutdown, informer)
	return func() *unstructured.Unstructured {
		object, exists, _ := informer.GetStore().GetByKey(cluster)
		if !exists {
			return nil
		}
		return object.(*unstructured.Unstructured).DeepCopy()
	}
}

// runInformers runs informers until the end of the test, and waits until they have synced.
func runInformers(t *testing.T, start func(<-chan struct{}), shutdown func(), informer cache.SharedIndexInformer) {
	t.Helper()
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		shutdown()
	})
	start(stop)
	framework.Eventually(t, "the informer is synced", func(context.Context) error {
		if !informer.HasSynced() {
			return errors.New("HasSynced() = false, want true")
		}
		return nil
	})
}

// request creates the CertificateSigningRequest of the agent, and returns its name and the key.
func (p *publicRegistration) request(t *testing.T, as *publicClient) (name string, key []byte) {
	t.Helper()
	key = framework.Must(keyutil.MakeEllipticPrivateKeyPEM())(t)
	content := framework.Must(certutil.MakeCSR(framework.Must(keyutil.ParsePrivateKeyPEM(key))(t), &pkix.Name{
		CommonName:   p.user(),
		Organization: []string{localhub.AgentGroup(p.cluster), "system:open-cluster-management:managed-clusters"},
	}, nil, nil))(t)
	created := framework.Must(as.kube.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: p.cluster + "-", Labels: map[string]string{clusterv1.ClusterNameLabel: p.cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: content, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{}))(t)
	return created.Name, key
}

func (p *publicRegistration) user() string { return localhub.AgentGroup(p.cluster) + ":xk2rw" }

// certificate waits with the informer of the agent until a CertificateSigningRequest has a
// certificate. It returns a client with the certificate, and the reason of the approval.
func (p *publicRegistration) certificate(t *testing.T, as *publicClient, name string, key []byte) (*publicClient, string) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(as.kube, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.ClusterNameLabel + "=" + p.cluster
	}))
	requests := factory.Certificates().V1().CertificateSigningRequests()
	runInformers(t, factory.Start, factory.Shutdown, requests.Informer())
	var certificate []byte
	var reason string
	framework.Eventually(t, "CertificateSigningRequest "+name+" has a certificate", func(context.Context) error {
		request, err := requests.Lister().Get(name)
		if err != nil {
			return err
		}
		certificate = request.Status.Certificate
		if len(certificate) == 0 {
			return fmt.Errorf("conditions = %v", request.Status.Conditions)
		}
		reason = request.Status.Conditions[0].Reason
		return nil
	})
	config := rest.CopyConfig(p.hub.AnonymousConfig())
	config.QPS, config.CertData, config.KeyData = -1, certificate, key
	return newPublicClient(t, config), reason
}

// publicAccept makes the requests of the upstream clusteradm accept, as an administrator. It
// approves the CertificateSigningRequests of bootstrap identities, unless the cluster is on EKS. It
// then accepts the cluster. It returns the names of the approved requests.
func publicAccept(t *testing.T, hub *localhub.Cluster, cluster string) []string {
	t.Helper()
	admin := newPublicClient(t, hub.AdminConfig())
	found := framework.Must(admin.clusters().Get(t.Context(), cluster, metav1.GetOptions{}))(t)
	var approved []string
	if found.GetAnnotations()[registration.ARNAnnotation] == "" {
		requests := framework.Must(admin.kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{
			LabelSelector: fmt.Sprintf("%s = %s", clusterv1.ClusterNameLabel, cluster),
		}))(t)
		for _, request := range requests.Items {
			byToken := strings.HasPrefix(request.Spec.Username, "system:bootstrap:") && slices.Contains(request.Spec.Groups, "system:bootstrappers:managedcluster")
			byAccount := slices.Contains(request.Spec.Groups, "system:serviceaccounts:open-cluster-management")
			if !byToken && !byAccount || len(request.Status.Conditions) > 0 {
				continue
			}
			request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: "True", Reason: publicApproval, Message: "Approved by hand.", LastUpdateTime: metav1.Now(),
			})
			framework.Must(admin.kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), request.Name, &request, metav1.UpdateOptions{}))(t)
			approved = append(approved, request.Name)
		}
	}
	if accepted, _, _ := unstructured.NestedBool(found.Object, "spec", "hubAcceptsClient"); !accepted {
		framework.Must(admin.clusters().Patch(t.Context(), cluster, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`), metav1.PatchOptions{}))(t)
	}
	return approved
}

// publicApproval is the reason that the upstream clusteradm sets in an approval.
const publicApproval = "clusteradmApprove"

// patch sends a merge patch of a part of an object with its UID and resourceVersion, as all upstream
// agents do.
func patch(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured, part map[string]any, subresources ...string) error {
	metadata, _ := part["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	part["metadata"] = metadata
	content, err := json.Marshal(part)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, object.GetName(), types.MergePatchType, content, metav1.PatchOptions{}, subresources...)
	return err
}

// patchStatus patches the status of the cached ManagedCluster, and repeats this until the hub
// accepts the patch. The patch contains all conditions. Conditions of other writers are sent as
// they were read.
func (c *publicClient) patchStatus(t *testing.T, watched func() *unstructured.Unstructured, status map[string]any, conditions ...metav1.Condition) {
	t.Helper()
	framework.Eventually(t, "the agent has patched its status", func(ctx context.Context) error {
		object := watched()
		all := conditionsOf(object)
		for _, condition := range conditions {
			meta.SetStatusCondition(&all, condition)
		}
		status["conditions"] = all
		return patch(ctx, c.clusters(), object, map[string]any{"status": status}, "status")
	})
}

func conditionsOf(cluster *unstructured.Unstructured) []metav1.Condition {
	var typed clusterv1.ManagedCluster
	if cluster == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(cluster.Object, &typed) != nil {
		return nil
	}
	return typed.Status.Conditions
}

// says returns an error if a condition does not have a status and a reason. An empty reason matches any
// reason.
func says(cluster *unstructured.Unstructured, conditionType string, status metav1.ConditionStatus, reason string) error {
	condition := meta.FindStatusCondition(conditionsOf(cluster), conditionType)
	if condition == nil || condition.Status != status || reason != "" && condition.Reason != reason {
		return fmt.Errorf("condition %s = %+v, want status %s and reason %q", conditionType, condition, status, reason)
	}
	return nil
}

// now returns the present time for a Lease or an Event.
func now() *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now()} }

var publicWorks = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
