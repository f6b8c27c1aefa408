package managedcluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	restclient "k8s.io/client-go/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
)

func (h *hub) record(t *testing.T, name string) *registerv1alpha1.ManagedClusterRegistration {
	t.Helper()
	out, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *hub) reservedBy(t *testing.T) string {
	t.Helper()
	holder, err := h.Records.Reserved(t.Context(), someHash)
	if err != nil {
		t.Fatal(err)
	}
	if holder == nil {
		return ""
	}
	return holder.ClusterName
}

// TestClaimByAnnotation checks both spellings, and that nobody can have what somebody has.
func TestClaimByAnnotation(t *testing.T) {
	for _, annotations := range [][]string{
		{registration.EKSARNAnnotation, bootARN},
		{registration.ARNAnnotation, bootARN, registration.RoleSuffixAnnotation, someHash},
	} {
		t.Run(annotations[0], func(t *testing.T) {
			h := startHub(t)
			mc := h.create(t, newCluster("c1", annotations...))
			record := h.record(t, "c1")
			if record.Spec.ManagedClusterUID != mc.UID || record.Spec.Driver != registerv1alpha1.DriverAWSIRSA || record.Spec.RequestedBy.Username != "bootstrap" ||
				!slices.Contains(record.Spec.RequestedBy.Groups, "system:bootstrappers:managedcluster") {
				t.Errorf("got %+v", record.Spec)
			}
			if record.Spec.IRSA == nil || record.Spec.IRSA.ManagedClusterARN != bootARN || record.Spec.IRSA.ClaimedBy != "bootstrap" || record.Spec.IRSA.ClaimedAt.IsZero() {
				t.Errorf("got %+v", record.Spec.IRSA)
			}
			if s := record.Status.IRSA; s == nil || s.Hash != someHash || s.Provisioned || s.HubRoleARN != "arn:aws:iam::123456789012:role/ocm-hub-"+someHash ||
				s.ManagedClusterRoleARN != "arn:aws:iam::567890123456:role/ocm-managed-cluster-"+someHash {
				t.Errorf("got %+v", s)
			}

			// The request is sent again, as its answer was lost.
			_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("c1", annotations...), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				t.Errorf("sent again, got %v", err)
			}

			// The region is no part of the identity.
			other := strings.Replace(bootARN, "us-west-2", "eu-west-1", 1)
			for _, arn := range []string{bootARN, other} {
				_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("c2", registration.ARNAnnotation, arn), metav1.CreateOptions{})
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations["+registration.ARNAnnotation+"]") || strings.Contains(err.Error(), "c1") {
					t.Errorf("got %v", err)
				}
			}
			if h.reservedBy(t) != "c1" {
				t.Errorf("held by %q", h.reservedBy(t))
			}
		})
	}
}

// TestHostileAnnotations checks that what is no good claim is refused, and leaves nothing behind.
func TestHostileAnnotations(t *testing.T) {
	arn, eks, suffix := registration.ARNAnnotation, registration.EKSARNAnnotation, registration.RoleSuffixAnnotation
	h := startHub(t)
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	h.grant("bootstrap", "patch cluster:managedclusters")
	h.create(t, newCluster("existing"))
	for name, test := range map[string]struct {
		annotations []string
		field       string
	}{
		"empty":                        {[]string{arn, ""}, arn},
		"no ARN":                       {[]string{arn, "spoke"}, arn},
		"too few parts":                {[]string{arn, "arn:aws:eks"}, arn},
		"no cluster":                   {[]string{eks, "arn:aws:eks:us-west-2:567890123456:nodegroup/spoke"}, eks},
		"account of letters":           {[]string{arn, "arn:aws:eks:us-west-2:56789012345x:cluster/spoke"}, arn},
		"name with a hash":             {[]string{arn, "arn:aws:eks:us-west-2:567890123456:cluster/a#b"}, arn},
		"name with a quote":            {[]string{arn, `arn:aws:eks:us-west-2:567890123456:cluster/a","Effect":"Allow`}, arn},
		"a new line":                   {[]string{arn, bootARN + "\n"}, arn},
		"another partition":            {[]string{arn, "arn:aws-cn:eks:cn-north-1:567890123456:cluster/spoke"}, arn},
		"partition of no such region":  {[]string{arn, "arn:aws-us-gov:eks:us-west-2:567890123456:cluster/spoke"}, arn},
		"very long":                    {[]string{arn, bootARN + strings.Repeat("a", 100000)}, arn},
		"two clusters":                 {[]string{arn, bootARN, eks, strings.Replace(bootARN, "spoke", "other", 1)}, eks},
		"another's suffix":             {[]string{arn, bootARN, suffix, "7f8141296c75f2871e3d030f85c35692"}, suffix},
		"a path for a suffix":          {[]string{arn, bootARN, suffix, "../admin"}, suffix},
		"a suffix of nobody (A2)":      {[]string{suffix, someHash}, arn},
		"role ARN":                     {[]string{arn, "arn:aws:iam::567890123456:role/admin"}, arn},
		"upper case":                   {[]string{arn, "ARN:AWS:EKS:us-west-2:567890123456:cluster/spoke"}, arn},
		"blanks":                       {[]string{arn, " " + bootARN}, arn},
		"digits that are none in Go":   {[]string{arn, "arn:aws:eks:us-west-2:٥67890123456:cluster/spoke"}, arn},
		"a wildcard":                   {[]string{arn, "arn:aws:eks:us-west-2:567890123456:cluster/*"}, arn},
		"upper case in suffix of hash": {[]string{arn, bootARN, suffix, strings.ToUpper(someHash)}, suffix},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func(err error) {
				t.Helper()
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations["+test.field+"]") || len(err.Error()) > 4096 {
					t.Errorf("got %.200v", err)
				}
			}
			_, err := clusters.Create(t.Context(), newCluster("c1", test.annotations...), metav1.CreateOptions{})
			refused(err)
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": newCluster("", test.annotations...).Annotations}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = clusters.Patch(t.Context(), "existing", types.MergePatchType, patch, metav1.PatchOptions{})
			refused(err)
			if by := h.reservedBy(t); by != "" {
				t.Errorf("an identity is left to %s", by)
			}
		})
	}
	// What the store refuses leaves nothing behind either.
	if _, err := clusters.Create(t.Context(), newCluster("existing", arn, bootARN), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
	if by := h.reservedBy(t); by != "" {
		t.Errorf("an identity is left to %s", by)
	}
	if _, err := h.Records.Get(t.Context(), "c1"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if record := h.record(t, "existing"); record.Spec.IRSA != nil {
		t.Errorf("got %+v", record.Spec)
	}
}

// TestClaimWithoutIRSA checks a hub that is on no EKS cluster.
func TestClaimWithoutIRSA(t *testing.T) {
	h := startHub(t, csr.Driver{})
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	if _, err := clusters.Create(t.Context(), newCluster("c1", registration.ARNAnnotation, bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "aws-irsa") {
		t.Errorf("got %v", err)
	}
	h.create(t, newCluster("c1"))
	if record := h.record(t, "c1"); record.Spec.Driver != registerv1alpha1.DriverCSR {
		t.Errorf("got %+v", record.Spec)
	}
	claims := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations()
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("got %v", err)
	}
	if _, err := claims.GetIRSA(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	// It is of no meaning here what an agent writes later.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"eks-managed-cluster-arn":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// TestLateAnnotation checks until when annotations claim something, and A1: that they
// mean nothing from then on.
func TestLateAnnotation(t *testing.T) {
	h := startHub(t)
	annotate := func(name, arn string) error {
		t.Helper()
		_, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, registration.EKSARNAnnotation, arn), metav1.PatchOptions{})
		return err
	}
	h.create(t, newCluster("c1"))
	// On dry-run nothing is taken.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, registration.EKSARNAnnotation, bootARN), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if by := h.reservedBy(t); by != "" {
		t.Fatalf("a dry-run has reserved the identity for %s", by)
	}
	if err := annotate("c1", bootARN); err != nil {
		t.Fatal(err)
	}
	first := h.record(t, "c1").Spec.IRSA
	if first == nil || first.ManagedClusterARN != bootARN {
		t.Fatalf("got %+v", first)
	}
	if err := annotate("c1", strings.Replace(bootARN, "spoke", "other", 1)); err != nil {
		t.Errorf("a change that means nothing: %v", err)
	}
	if got := h.record(t, "c1").Spec.IRSA; got.ManagedClusterARN != bootARN {
		t.Errorf("got %+v", got)
	}

	h.create(t, newCluster("c2"))
	if err := annotate("c2", bootARN); !apierrors.IsInvalid(err) || strings.Contains(err.Error(), "c1") {
		t.Errorf("the identity of another: %v", err)
	}
	h.put(t, decision("c2", true))
	own := h.agent(t, "c2").ClusterV1().ManagedClusters()
	for _, patch := range []string{
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`, registration.ARNAnnotation, bootARN, registration.RoleSuffixAnnotation, someHash),
		`{"metadata":{"annotations":{"eks-managed-cluster-arn":"arn:aws:eks"}}}`,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null,%q:%q}}}`, registration.ARNAnnotation, registration.RoleSuffixAnnotation,
			registration.EKSARNAnnotation, strings.Replace(bootARN, "spoke", "free", 1)),
	} {
		if _, err := own.Patch(t.Context(), "c2", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := own.Patch(t.Context(), "c2", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, "c2")); err != nil {
		t.Error(err)
	}
	if got := h.record(t, "c2").Spec; got.IRSA != nil || got.Driver != registerv1alpha1.DriverCSR {
		t.Errorf("got %+v", got)
	}
	if h.reservedBy(t) != "c1" {
		t.Errorf("held by %s", h.reservedBy(t))
	}

	// Not both at once: what is accepted would not be what was looked at.
	h.create(t, newCluster("c3"))
	_, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c3", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"hubAcceptsClient":true}}`, registration.EKSARNAnnotation, strings.Replace(bootARN, "spoke", "third", 1)), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v", err)
	}
}

// TestOneIdentity checks that of clusters that claim one identity at the same time one gets it.
func TestOneIdentity(t *testing.T) {
	h := startHub(t)
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	const n = 8
	for i := range n / 2 {
		h.create(t, newCluster(fmt.Sprintf("posting%d", i)))
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	succeeded := 0
	for i := range n {
		group.Go(func() {
			var err error
			if i < n/2 {
				_, err = clusters.Create(t.Context(), newCluster(fmt.Sprintf("creating%d", i), registration.EKSARNAnnotation, bootARN), metav1.CreateOptions{})
			} else {
				_, err = h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), fmt.Sprintf("posting%d", i-n/2), claimOf(bootARN), metav1.CreateOptions{})
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				succeeded++
			} else if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, record := range list.Items {
		if record.Spec.IRSA != nil {
			with = append(with, record.Name)
		}
	}
	if succeeded != 1 || len(with) != 1 || h.reservedBy(t) != with[0] {
		t.Errorf("%d succeeded, %v have the claim, held by %q", succeeded, with, h.reservedBy(t))
	}
}

// TestCrash checks what becomes of a request of which a server has done but a part.
func TestCrash(t *testing.T) {
	t.Run("before the cluster is stored", func(t *testing.T) {
		h := startHub(t)
		if err := h.Records.Reserve(t.Context(), someHash, holder("c1", "never")); err != nil {
			t.Fatal(err)
		}
		clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
		if _, err := clusters.Create(t.Context(), newCluster("c2", registration.EKSARNAnnotation, bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("it may still be under way: %v", err)
		}
		// The agent of the same cluster sends it again.
		h.create(t, newCluster("c1", registration.EKSARNAnnotation, bootARN))
		if got := h.record(t, "c1").Spec.IRSA; got == nil {
			t.Error("it has no claim")
		}

		h.remove(t, "c1")
		if err := h.Records.Reserve(t.Context(), someHash, holder("c1", "never")); err != nil {
			t.Fatal(err)
		}
		h.clock.SetTime(h.clock.Now().Add(3 * time.Minute))
		h.create(t, newCluster("c2", registration.EKSARNAnnotation, bootARN))
		if h.reservedBy(t) != "c2" {
			t.Errorf("held by %q", h.reservedBy(t))
		}
	})
	t.Run("before it is registered", func(t *testing.T) {
		h := startHub(t)
		mc := h.create(t, newCluster("c1", registration.EKSARNAnnotation, bootARN))
		if err := h.Records.Delete(t.Context(), "c1", h.record(t, "c1").UID); err != nil {
			t.Fatal(err)
		}
		h.clock.SetTime(h.clock.Now().Add(time.Hour))
		// Until the controller comes, nobody else gets the identity, also by POST.
		h.create(t, newCluster("c2"))
		_, err := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), "c2", claimOf(bootARN), metav1.CreateOptions{})
		if !apierrors.IsConflict(err) || strings.Contains(err.Error(), "c1") {
			t.Errorf("got %v", err)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if err := h.Registrar.EnsureRecord(t.Context(), mc); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if record := h.record(t, "c1"); record.Spec.IRSA == nil || record.Spec.RequestedBy.Username != "bootstrap" || record.Spec.ManagedClusterUID != mc.UID {
			t.Errorf("got %+v", record.Spec)
		}
	})
	t.Run("before the claim is written", func(t *testing.T) {
		h := startHub(t)
		mc := h.create(t, newCluster("c1"))
		if err := h.Records.Reserve(t.Context(), someHash, holder("c1", mc.UID)); err != nil {
			t.Fatal(err)
		}
		h.create(t, newCluster("c2"))
		claims := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations()
		if _, err := claims.ClaimIRSA(t.Context(), "c2", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("got %v", err)
		}
		h.clock.SetTime(h.clock.Now().Add(3 * time.Minute))
		if _, err := claims.ClaimIRSA(t.Context(), "c2", claimOf(bootARN), metav1.CreateOptions{}); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func claimOf(arn string) *registerv1alpha1.ManagedClusterIRSA {
	return &registerv1alpha1.ManagedClusterIRSA{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: arn}}
}

func TestClaimIRSA(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	claims := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations()
	if _, err := claims.GetIRSA(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a claim: %v", err)
	}
	dry, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dry.Status.Hash != someHash {
		t.Errorf("dry-run: %+v %v", dry, err)
	}
	if h.record(t, "c1").Spec.IRSA != nil || h.reservedBy(t) != "" {
		t.Fatal("a dry-run has claimed")
	}
	for _, bad := range []*registerv1alpha1.ManagedClusterIRSA{claimOf(""), claimOf("x"), claimOf("arn:aws-cn:eks:cn-north-1:567890123456:cluster/spoke"),
		{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: bootARN, OIDCProvider: "https://x"}}} {
		if _, err := claims.ClaimIRSA(t.Context(), "c1", bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%+v: %v", bad.Spec, err)
		}
	}

	given := claimOf(bootARN)
	given.Spec.OIDCProvider, given.Spec.ServiceAccounts = "oidc.eks.us-west-2.amazonaws.com/id/ABC", []string{"ns:agent"}
	got, err := claims.ClaimIRSA(t.Context(), "c1", given, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := got.Status
	if got.Name != "c1" || s.HubClusterARN != hubARN || s.Hash != someHash || s.Group != "open-cluster-management:c1" || s.Accepted || len(s.Commands) != 3 ||
		s.HubRole.Name != "ocm-hub-"+someHash || s.ManagedClusterRole.Name != "ocm-managed-cluster-"+someHash {
		t.Errorf("got %+v", s)
	}
	for _, document := range []string{s.HubRole.TrustPolicy, s.HubRole.AccessPolicy, s.ManagedClusterRole.TrustPolicy, s.ManagedClusterRole.AccessPolicy} {
		if !json.Valid([]byte(document)) {
			t.Errorf("no JSON: %s", document)
		}
	}
	if !strings.Contains(s.ManagedClusterRole.TrustPolicy, "oidc.eks.us-west-2.amazonaws.com/id/ABC") || !strings.Contains(s.ManagedClusterRole.TrustPolicy, "system:serviceaccount:ns:agent") {
		t.Errorf("got %s", s.ManagedClusterRole.TrustPolicy)
	}

	// To ask again is the same claim, with or without the ARN.
	before := h.record(t, "c1")
	if again, err := claims.ClaimIRSA(t.Context(), "c1", given, metav1.CreateOptions{}); err != nil || again.Status.Hash != someHash {
		t.Errorf("again: %+v %v", again, err)
	}
	if after := h.record(t, "c1"); after.ResourceVersion != before.ResourceVersion {
		t.Error("to ask again has written")
	}
	if read, err := claims.GetIRSA(t.Context(), "c1", metav1.GetOptions{}); err != nil || read.Spec.ManagedClusterARN != bootARN {
		t.Errorf("get: %+v %v", read, err)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(strings.Replace(bootARN, "spoke", "other", 1)), metav1.CreateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "withdraw") {
		t.Errorf("another ARN: %v", err)
	}

	// Who has not created the cluster, and may not decide about it, has no say.
	h.grant("stranger", "create register:managedclusters/irsa", "delete register:managedclusters/irsa")
	stranger := h.as(t, "stranger")
	if _, err := stranger.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger: %v", err)
	}
	if err := h.withdraw(t, "stranger", "c1"); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger withdraws: %v", err)
	}

	// What was accepted without a claim does not become something else.
	h.create(t, newCluster("c2"))
	h.put(t, decision("c2", true))
	if _, err := claims.ClaimIRSA(t.Context(), "c2", claimOf(strings.Replace(bootARN, "spoke", "other", 1)), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("accepted without: %v", err)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c0", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("no such cluster: %v", err)
	}
}

func (h *hub) rest(t *testing.T, name string, groups ...string) restclient.Interface {
	t.Helper()
	return h.as(t, name, groups...).RegisterV1alpha1().RESTClient()
}

func (h *hub) withdraw(t *testing.T, user, cluster string, groups ...string) error {
	t.Helper()
	return h.rest(t, user, groups...).Delete().Resource("managedclusters").Name(cluster).SubResource("irsa").Do(t.Context()).Error()
}

func TestWithdraw(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1", registration.EKSARNAnnotation, bootARN))
	h.put(t, decision("c1", true))
	provisioned := func(provisioned bool) {
		t.Helper()
		if _, err := h.Records.Update(t.Context(), "c1", func(r *registerv1alpha1.ManagedClusterRegistration) error {
			r.Status.IRSA.Provisioned = provisioned
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	provisioned(true)

	// The requester does not decide about a cluster that is accepted.
	h.grant("bootstrap", "delete register:managedclusters/irsa")
	if err := h.withdraw(t, "bootstrap", "c1"); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	deleting := func(options metav1.DeleteOptions) ([]byte, error) {
		return h.rest(t, "admin", user.SystemPrivilegedGroup).Delete().Resource("managedclusters").Name("c1").SubResource("irsa").Body(&options).Do(t.Context()).Raw()
	}
	if _, err := deleting(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if _, err := deleting(metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}); err == nil || !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if !h.get(t, "c1").Spec.HubAcceptsClient || h.record(t, "c1").Spec.IRSA.Withdrawn {
		t.Fatal("withdrawn")
	}
	h.takeRevoked()

	raw, err := deleting(metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var answer registerv1alpha1.ManagedClusterIRSA
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Kind != "ManagedClusterIRSA" || answer.APIVersion != "register.open-cluster-management.io/v1alpha1" || answer.Status.Accepted {
		t.Errorf("answer %s: %v", raw, err)
	}
	mc := h.get(t, "c1")
	if mc.Spec.HubAcceptsClient || mc.Status.Acceptance.Reason != "IRSA claim withdrawn" || !slices.Equal(h.takeRevoked(), []string{"c1"}) {
		t.Errorf("got %+v", mc.Status.Acceptance)
	}
	// AWS may still have it: the claim stays, and bars everything, until that is removed.
	if record := h.record(t, "c1"); record.Spec.IRSA == nil || !record.Spec.IRSA.Withdrawn || h.reservedBy(t) != "c1" {
		t.Errorf("got %+v", record.Spec)
	}
	claims := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations()
	if _, err := claims.Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("accepted meanwhile: %v", err)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("claimed meanwhile: %v", err)
	}
	if err := h.Registrar.ForgetClaim(t.Context(), "c1"); err == nil {
		t.Error("forgotten while AWS may have something of it")
	}
	provisioned(false)
	if err := h.Registrar.ForgetClaim(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if record := h.record(t, "c1"); record.Spec.IRSA != nil || record.Status.IRSA != nil || record.Spec.Driver != registerv1alpha1.DriverCSR || h.reservedBy(t) != "" {
		t.Errorf("got %+v", record)
	}
	// The annotation is read once.
	if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, "c1")); err != nil {
		t.Fatal(err)
	}
	if h.record(t, "c1").Spec.IRSA != nil {
		t.Error("the annotation is read again")
	}

	// What nothing was made for ends at once, and who has made the claim may do it.
	h.create(t, newCluster("c2", registration.EKSARNAnnotation, bootARN))
	if err := h.withdraw(t, "bootstrap", "c2"); err != nil {
		t.Fatal(err)
	}
	if record := h.record(t, "c2"); record.Spec.IRSA != nil || h.reservedBy(t) != "" {
		t.Errorf("got %+v", record.Spec)
	}
	if err := h.withdraw(t, "bootstrap", "c2"); !apierrors.IsNotFound(err) {
		t.Errorf("again: %v", err)
	}
	if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, "c2")); err != nil {
		t.Fatal(err)
	}
	if h.record(t, "c2").Spec.IRSA != nil {
		t.Error("the annotation is read again")
	}
}

// TestServerOwned checks that registrations can be read, and not written by anybody.
func TestServerOwned(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	client := h.rest(t, "admin", user.SystemPrivilegedGroup)
	resources, err := h.admin(t).Discovery().ServerResourcesForGroupVersion("register.open-cluster-management.io/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{}
	for _, resource := range resources.APIResources {
		verbs[resource.Name] = slices.Sorted(slices.Values(resource.Verbs))
	}
	want := map[string][]string{"managedclusters": {"get", "list", "watch"}, "managedclusters/accept": {"update"}, "managedclusters/irsa": {"create", "delete", "get"}}
	if fmt.Sprint(verbs) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", verbs, want)
	}
	path := "/apis/register.open-cluster-management.io/v1alpha1/managedclusters"
	for what, request := range map[string]*restclient.Request{
		"create": client.Post().AbsPath(path), "update": client.Put().AbsPath(path, "c1"), "delete": client.Delete().AbsPath(path, "c1"),
		"patch": client.Patch(types.MergePatchType).AbsPath(path, "c1"), "deletecollection": client.Delete().AbsPath(path),
		"accept by patch": client.Patch(types.MergePatchType).AbsPath(path, "c1", "accept"),
	} {
		code := 0
		request.Body([]byte(`{"metadata":{"name":"c1"}}`)).Do(t.Context()).StatusCode(&code)
		if code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d, want 405", what, code)
		}
	}
	code := 0
	client.Put().AbsPath(path, "c1", "status").Body([]byte(`{"metadata":{"name":"c1"}}`)).Do(t.Context()).StatusCode(&code)
	if code != http.StatusNotFound {
		t.Errorf("status: %d, want 404", code)
	}
	table, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(table), `"c1"`) || !strings.Contains(string(table), `"csr"`) {
		t.Errorf("table %s: %v", table, err)
	}
	raw, err := client.Put().AbsPath(path, "c1", "accept").Body([]byte(`{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAcceptance","metadata":{"name":"c1"},"spec":{"accepted":true}}`)).Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(raw), `"kind":"ManagedClusterAcceptance"`) || !strings.Contains(string(raw), `"apiVersion":"register.open-cluster-management.io/v1alpha1"`) {
		t.Errorf("answer %s: %v", raw, err)
	}
	if !h.get(t, "c1").Spec.HubAcceptsClient {
		t.Error("not accepted")
	}
}
