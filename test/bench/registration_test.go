package bench_test

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// joins is the number of clusters that join one after another.
	joins = 100
	// registrars is the number of clusters that register concurrently.
	registrars = 8
	// joinPoll is the interval at which the state of a joining cluster is checked.
	joinPoll = 5 * time.Millisecond
	// leasePeriod is the interval at which agents renew their leases.
	leasePeriod = time.Minute

	serverUser = "system:serviceaccount:" + localhub.HubNamespace + ":" + localhub.ServerName
)

// registrationHub is a hub that simulated clusters join. No process of these clusters runs.
type registrationHub struct {
	*localhub.Fleet
	dir                    string
	admin, bootstrap       *versioned.Clientset
	hub, bootstrapRequests *kubernetes.Clientset
}

func startRegistrationHub(b *testing.B, name string, env []string, args ...string) *registrationHub {
	b.Helper()
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	h := &registrationHub{dir: dir}
	var err error
	h.Fleet, err = localhub.NewFleet(localhub.FleetOptions{Dir: dir, HubAuditPolicy: auditOf(serverUser), APIServerArgs: args})
	if err != nil {
		b.Fatal(err)
	}
	h.Server.Env = env
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := h.Start(ctx); err != nil {
		b.Fatal(err)
	}
	roles, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", "hub"))
	if err == nil {
		err = h.Hub.Apply(ctx, roles...)
	}
	if err != nil {
		b.Fatal(err)
	}
	token, err := h.Hub.ServiceAccountConfig(ctx, "open-cluster-management", "agent-registration-bootstrap")
	if err != nil {
		b.Fatal(err)
	}
	h.admin, h.hub = clientsOf(b, h.Hub.AdminConfig())
	h.bootstrap, h.bootstrapRequests = clientsOf(b, token)
	return h
}

func clientsOf(b *testing.B, config *rest.Config) (*versioned.Clientset, *kubernetes.Clientset) {
	b.Helper()
	config.QPS = -1
	ocm, err := versioned.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	return ocm, kube
}

func (h *registrationHub) create(ctx context.Context, name string, annotations map[string]string) error {
	_, err := h.bootstrap.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
	}, metav1.CreateOptions{})
	return err
}

func (h *registrationHub) accept(ctx context.Context, name string) error {
	_, err := h.admin.RegisterV1alpha1().ManagedClusterRegistrations().Accept(ctx, name, &registerv1alpha1.ManagedClusterAcceptance{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: true},
	}, metav1.UpdateOptions{})
	return err
}

// accepted waits until the hub reports that a cluster has access.
func (h *registrationHub) accepted(ctx context.Context, name string) error {
	return until(ctx, "ManagedCluster "+name+" has the condition HubAccepted", func(ctx context.Context) error {
		cluster, err := h.bootstrap.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted) {
			err = fmt.Errorf("conditions = %v, want HubAcceptedManagedCluster", cluster.Status.Conditions)
		}
		return err
	})
}

// until calls check until it returns no error.
func until(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, joinPoll, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// join joins a cluster as its agent does: with a bootstrap token, it creates a ManagedCluster and
// a CertificateSigningRequest. Then an administrator accepts the cluster. join returns the time
// from the acceptance until the first successful request with the certificate, and until the
// agent can list its ManifestWorks.
func (h *registrationHub) join(b *testing.B, name string) (usable, works time.Duration, err error) {
	ctx := b.Context()
	if err := h.create(ctx, name, nil); err != nil {
		return 0, 0, err
	}
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return 0, 0, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return 0, 0, err
	}
	group := "system:open-cluster-management:" + name
	asked, err := cert.MakeCSR(parsed, &pkix.Name{
		CommonName: group + ":agent", Organization: []string{group, "system:open-cluster-management:managed-clusters"},
	}, nil, nil)
	if err != nil {
		return 0, 0, err
	}
	request, err := h.bootstrapRequests.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: asked, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, 0, err
	}

	started := time.Now()
	if err := h.accept(ctx, name); err != nil {
		return 0, 0, err
	}
	err = until(ctx, "the CertificateSigningRequest of "+name+" has a certificate", func(ctx context.Context) error {
		signed, err := h.bootstrapRequests.CertificatesV1().CertificateSigningRequests().Get(ctx, request.Name, metav1.GetOptions{})
		if err == nil && len(signed.Status.Certificate) == 0 {
			err = fmt.Errorf("no certificate, conditions = %v", signed.Status.Conditions)
		}
		request = signed
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	config := h.Hub.AnonymousConfig()
	config.CertData, config.KeyData = request.Status.Certificate, key
	agent, _ := clientsOf(b, config)
	err = until(ctx, "the agent of "+name+" can get its ManagedCluster", func(ctx context.Context) error {
		_, err := agent.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	usable = time.Since(started)
	err = until(ctx, "the agent of "+name+" can list its ManifestWorks", func(ctx context.Context) error {
		_, err := agent.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
		return err
	})
	return usable, time.Since(started), err
}

// requests returns the number of requests of our server to the hub so far, by verb and resource.
func (h *registrationHub) requests(b *testing.B) map[string]int {
	b.Helper()
	events, _, err := localhub.ReadAudit(h.Hub.AuditLog(), 0)
	if err != nil {
		b.Fatal(err)
	}
	counts := map[string]int{}
	for _, event := range events {
		counts[asked(&event)]++
	}
	return counts
}

// since returns the requests since an earlier count: the total, and a text with the most frequent first.
func since(before, after map[string]int) (total int, text string) {
	asked := maps.Clone(after)
	for what, n := range before {
		asked[what] -= n
	}
	maps.DeleteFunc(asked, func(_ string, n int) bool { return n == 0 })
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(asked), func(a, b string) int { return asked[b] - asked[a] }) {
		total += asked[what]
		parts = append(parts, fmt.Sprintf("%d %s", asked[what], what))
	}
	return total, strings.Join(parts, ", ")
}

// BenchmarkRegistration joins clusters with certificates, first one after another and then many
// concurrently. Afterwards it measures the server while the clusters only renew their leases.
func BenchmarkRegistration(b *testing.B) {
	h, count := startRegistrationHub(b, "registration", nil), number(b, "BENCH_CLUSTERS", 1000)
	for n := range b.N {
		var usable, works []time.Duration
		for i := range joins {
			u, w, err := h.join(b, fmt.Sprintf("join-%d-%d", n, i))
			if err != nil {
				b.Fatal(err)
			}
			usable, works = append(usable, u), append(works, w)
		}
		report(b, "accept to the first request with the certificate", "usable", usable)
		report(b, "accept to the first list of works", "works", works)

		before, counted := resident(b, h.Server.PID()), h.requests(b)
		fleet := make([]string, count)
		for i := range fleet {
			fleet[i] = fmt.Sprintf("fleet-%d-%d", n, i)
		}
		started := time.Now()
		registering, ctx := errgroup.WithContext(b.Context())
		registering.SetLimit(registrars)
		for _, name := range fleet {
			registering.Go(func() error {
				return errors.Join(h.create(ctx, name, nil), h.accept(ctx, name), h.accepted(ctx, name))
			})
		}
		if err := registering.Wait(); err != nil {
			b.Fatal(err)
		}
		took, after := time.Since(started), resident(b, h.Server.PID())
		total, text := since(counted, h.requests(b))
		b.ReportMetric(took.Seconds(), "fleet-s")
		b.ReportMetric(after, "apiserver-MB")
		b.ReportMetric(float64(total)/float64(count), "requests/cluster")
		fmt.Printf("%d clusters created, accepted and given their access, %d at a time: %.1f s; apiserver %.0f MB resident before, %.0f MB after\n", count, registrars, took.Seconds(), before, after)
		fmt.Printf("requests of the server to the hub meanwhile: %.1f a cluster (%s)\n", float64(total)/float64(count), text)

		h.renewLeases(b, fleet) // the first renewals cause additional requests
		counted = h.requests(b)
		started = time.Now()
		h.renewLeases(b, fleet)
		total, text = since(counted, h.requests(b))
		perMinute := float64(total) / time.Since(started).Minutes()
		b.ReportMetric(perMinute, "idle-requests/min")
		fmt.Printf("%d idle clusters that renew their leases: %.0f requests of the server to the hub a minute (%s); apiserver %.0f MB resident\n", count, perMinute, text, resident(b, h.Server.PID()))
	}
}

// renewLeases renews the lease of each cluster once, spread over the period of leases.
func (h *registrationHub) renewLeases(b *testing.B, clusters []string) {
	b.Helper()
	tick := time.NewTicker(leasePeriod / time.Duration(len(clusters)))
	defer tick.Stop()
	for _, cluster := range clusters {
		<-tick.C
		leases := h.hub.CoordinationV1().Leases(cluster)
		lease, err := leases.Get(b.Context(), registration.LeaseName, metav1.GetOptions{})
		if err == nil {
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			_, err = leases.Update(b.Context(), lease, metav1.UpdateOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRegistrationIRSA joins clusters with IAM roles of a fakeaws server, which responds
// immediately.
func BenchmarkRegistrationIRSA(b *testing.B) {
	hub := irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: "111122223333", ClusterName: "hub"}
	aws, err := fakeaws.New(fakeaws.Options{Region: hub.Region})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := aws.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := aws.AddCluster(hub.String(), fakeaws.ModeAPI); err != nil {
		b.Fatal(err)
	}
	key, err := aws.AddUser(hub.AccountID, "server", irsa.CreatorAccessPolicy(hub).JSON(), irsa.CreatorMappingPolicy(hub).JSON())
	if err != nil {
		b.Fatal(err)
	}
	h := startRegistrationHub(b, "registration-irsa", aws.Env(key), "--registration-auth=csr,aws-irsa", "--hub-cluster-arn="+hub.String())
	for n := range b.N {
		aws.ResetCalls()
		var accepted []time.Duration
		for i := range joins {
			name := fmt.Sprintf("irsa-%d-%d", n, i)
			managed := irsa.ARN{Partition: hub.Partition, Region: hub.Region, AccountID: "444455556666", ClusterName: name}
			if err := h.create(b.Context(), name, map[string]string{registration.ARNAnnotation: managed.String()}); err != nil {
				b.Fatal(err)
			}
			started := time.Now()
			if err := errors.Join(h.accept(b.Context(), name), h.accepted(b.Context(), name)); err != nil {
				b.Fatal(err)
			}
			accepted = append(accepted, time.Since(started))
		}
		report(b, "accept of a cluster on EKS to HubAccepted", "accepted", accepted)
		fmt.Printf("calls to AWS: %.1f a cluster\n", float64(len(aws.Calls()))/joins)
	}
}
