package managedclusterregistration_test

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

// TestClaimByAnnotation checks both annotations, and that a second cluster cannot claim the same identity.
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
				t.Errorf("registration of c1 = %+v, want the driver aws-irsa, requested by bootstrap", record.Spec)
			}
			if record.Spec.IRSA == nil || record.Spec.IRSA.ManagedClusterARN != bootARN || record.Spec.IRSA.ClaimedBy != "bootstrap" || record.Spec.IRSA.ClaimedAt.IsZero() {
				t.Errorf("claim of c1 = %+v, want %s claimed by bootstrap", record.Spec.IRSA, bootARN)
			}
			if s := record.Status.IRSA; s == nil || s.Hash != someHash || s.Provisioned || s.HubRoleARN != "arn:aws:iam::123456789012:role/ocm-hub-"+someHash ||
				s.ManagedClusterRoleARN != "arn:aws:iam::567890123456:role/ocm-managed-cluster-"+someHash {
				t.Errorf("status of the claim = %+v, want hash %s and the ARNs of both roles", s, someHash)
			}

			// The client repeats the request.
			_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("c1", annotations...), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				t.Errorf("Create() of a repeated request = %v, want AlreadyExists", err)
			}

			// The identity does not contain the region.
			other := strings.Replace(bootARN, "us-west-2", "eu-west-1", 1)
			for _, arn := range []string{bootARN, other} {
				_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("c2", registration.ARNAnnotation, arn), metav1.CreateOptions{})
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations["+registration.ARNAnnotation+"]") || strings.Contains(err.Error(), "c1") {
					t.Errorf("Create() with the ARN of another cluster = %v, want an error of the annotation without the other name", err)
				}
			}
			if h.reservedBy(t) != "c1" {
				t.Errorf("identity is reserved by %q, want c1", h.reservedBy(t))
			}
		})
	}
}

// TestHostileAnnotations checks that invalid claims are refused and do not reserve an identity.
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
		"empty":                         {[]string{arn, ""}, arn},
		"not an ARN":                    {[]string{arn, "spoke"}, arn},
		"too few parts":                 {[]string{arn, "arn:aws:eks"}, arn},
		"no cluster":                    {[]string{eks, "arn:aws:eks:us-west-2:567890123456:nodegroup/spoke"}, eks},
		"account of letters":            {[]string{arn, "arn:aws:eks:us-west-2:56789012345x:cluster/spoke"}, arn},
		"name with a hash":              {[]string{arn, "arn:aws:eks:us-west-2:567890123456:cluster/a#b"}, arn},
		"name with a quote":             {[]string{arn, `arn:aws:eks:us-west-2:567890123456:cluster/a","Effect":"Allow`}, arn},
		"a new line":                    {[]string{arn, bootARN + "\n"}, arn},
		"another partition":             {[]string{arn, "arn:aws-cn:eks:cn-north-1:567890123456:cluster/spoke"}, arn},
		"partition without this region": {[]string{arn, "arn:aws-us-gov:eks:us-west-2:567890123456:cluster/spoke"}, arn},
		"very long":                     {[]string{arn, bootARN + strings.Repeat("a", 100000)}, arn},
		"two clusters":                  {[]string{arn, bootARN, eks, strings.Replace(bootARN, "spoke", "other", 1)}, eks},
		"suffix of another identity":    {[]string{arn, bootARN, suffix, "7f8141296c75f2871e3d030f85c35692"}, suffix},
		"a path for a suffix":           {[]string{arn, bootARN, suffix, "../admin"}, suffix},
		"a suffix without an ARN":       {[]string{suffix, someHash}, arn},
		"role ARN":                      {[]string{arn, "arn:aws:iam::567890123456:role/admin"}, arn},
		"upper case":                    {[]string{arn, "ARN:AWS:EKS:us-west-2:567890123456:cluster/spoke"}, arn},
		"blanks":                        {[]string{arn, " " + bootARN}, arn},
		"digits that are not ASCII":     {[]string{arn, "arn:aws:eks:us-west-2:٥67890123456:cluster/spoke"}, arn},
		"a wildcard":                    {[]string{arn, "arn:aws:eks:us-west-2:567890123456:cluster/*"}, arn},
		"upper case in the suffix":      {[]string{arn, bootARN, suffix, strings.ToUpper(someHash)}, suffix},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func(err error) {
				t.Helper()
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations["+test.field+"]") || len(err.Error()) > 4096 {
					t.Errorf("write of %v = %.200v, want an error of metadata.annotations[%s]", test.annotations, err, test.field)
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
				t.Errorf("identity is reserved by %q after a refusal, want none", by)
			}
		})
	}
	// A request that the store refuses does not reserve an identity either.
	if _, err := clusters.Create(t.Context(), newCluster("existing", arn, bootARN), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create() of an existing cluster = %v, want AlreadyExists", err)
	}
	if by := h.reservedBy(t); by != "" {
		t.Errorf("identity is reserved by %q after a refusal, want none", by)
	}
	if _, err := h.Records.Get(t.Context(), "c1"); !apierrors.IsNotFound(err) {
		t.Errorf("Get(c1) = %v, want 404", err)
	}
	if record := h.record(t, "existing"); record.Spec.IRSA != nil {
		t.Errorf("registration of the existing cluster = %+v, want no claim", record.Spec)
	}
}

// TestClaimWithoutIRSA checks a hub without the driver aws-irsa.
func TestClaimWithoutIRSA(t *testing.T) {
	h := startHub(t, csr.Driver{})
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	if _, err := clusters.Create(t.Context(), newCluster("c1", registration.ARNAnnotation, bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "aws-irsa") {
		t.Errorf("Create() with an ARN = %v, want 422 that names aws-irsa", err)
	}
	h.create(t, newCluster("c1"))
	if record := h.record(t, "c1"); record.Spec.Driver != registerv1alpha1.DriverCSR {
		t.Errorf("registration of c1 = %+v, want the driver csr", record.Spec)
	}
	claims := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations()
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("ClaimIRSA() = %v, want 422", err)
	}
	if _, err := claims.GetIRSA(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("GetIRSA() = %v, want 404", err)
	}
	// Later annotations have no effect.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"eks-managed-cluster-arn":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// TestLateAnnotation checks that annotations have no effect after a claim or the acceptance.
func TestLateAnnotation(t *testing.T) {
	h := startHub(t)
	annotate := func(name, arn string) error {
		t.Helper()
		_, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, registration.EKSARNAnnotation, arn), metav1.PatchOptions{})
		return err
	}
	h.create(t, newCluster("c1"))
	// A dry run does not reserve the identity.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, registration.EKSARNAnnotation, bootARN), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if by := h.reservedBy(t); by != "" {
		t.Fatalf("identity is reserved by %q after a dry run, want none", by)
	}
	if err := annotate("c1", bootARN); err != nil {
		t.Fatal(err)
	}
	first := h.record(t, "c1").Spec.IRSA
	if first == nil || first.ManagedClusterARN != bootARN {
		t.Fatalf("claim = %+v, want %s", first, bootARN)
	}
	if err := annotate("c1", strings.Replace(bootARN, "spoke", "other", 1)); err != nil {
		t.Errorf("change of the annotation after the claim = %v, want no error", err)
	}
	if got := h.record(t, "c1").Spec.IRSA; got.ManagedClusterARN != bootARN {
		t.Errorf("claim after a change of the annotation = %+v, want %s", got, bootARN)
	}

	h.create(t, newCluster("c2"))
	if err := annotate("c2", bootARN); !apierrors.IsInvalid(err) || strings.Contains(err.Error(), "c1") {
		t.Errorf("annotation with the ARN of another cluster = %v, want 422 without the other name", err)
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
		t.Errorf("registration of c2 = %+v, want the driver csr without claim", got)
	}
	if h.reservedBy(t) != "c1" {
		t.Errorf("identity is reserved by %q, want c1", h.reservedBy(t))
	}

	// One write cannot claim an ARN and accept the cluster: the approver has not seen the claim.
	h.create(t, newCluster("c3"))
	_, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c3", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"hubAcceptsClient":true}}`, registration.EKSARNAnnotation, strings.Replace(bootARN, "spoke", "third", 1)), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("write of a claim and an acceptance = %v, want 422", err)
	}
}

// TestOneIdentity checks that one of several concurrent claims of an identity succeeds.
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
		t.Errorf("successful claims = %d, clusters with the claim = %v, reserved by %q, want one cluster", succeeded, with, h.reservedBy(t))
	}
}

// TestCrash checks the recovery after the server stopped during a request.
func TestCrash(t *testing.T) {
	t.Run("before the cluster is stored", func(t *testing.T) {
		h := startHub(t)
		if err := h.Records.Reserve(t.Context(), someHash, holder("c1", "never")); err != nil {
			t.Fatal(err)
		}
		clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
		if _, err := clusters.Create(t.Context(), newCluster("c2", registration.EKSARNAnnotation, bootARN), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("Create() while the other request may still run = %v, want 422", err)
		}
		// The agent of the same cluster repeats the request.
		h.create(t, newCluster("c1", registration.EKSARNAnnotation, bootARN))
		if got := h.record(t, "c1").Spec.IRSA; got == nil {
			t.Error("claim of c1 = nil, want a claim")
		}

		h.remove(t, "c1")
		if err := h.Records.Reserve(t.Context(), someHash, holder("c1", "never")); err != nil {
			t.Fatal(err)
		}
		h.clock.SetTime(h.clock.Now().Add(3 * time.Minute))
		h.create(t, newCluster("c2", registration.EKSARNAnnotation, bootARN))
		if h.reservedBy(t) != "c2" {
			t.Errorf("identity is reserved by %q, want c2", h.reservedBy(t))
		}
	})
	t.Run("before it is registered", func(t *testing.T) {
		h := startHub(t)
		mc := h.create(t, newCluster("c1", registration.EKSARNAnnotation, bootARN))
		if err := h.Records.Delete(t.Context(), "c1", h.record(t, "c1").UID); err != nil {
			t.Fatal(err)
		}
		h.clock.SetTime(h.clock.Now().Add(time.Hour))
		// Until the controller runs, no other cluster can claim the identity, not even by a POST
		// request.
		h.create(t, newCluster("c2"))
		_, err := h.bootstrap(t).RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), "c2", claimOf(bootARN), metav1.CreateOptions{})
		if !apierrors.IsConflict(err) || strings.Contains(err.Error(), "c1") {
			t.Errorf("request after a crash = %v, want 409 without the other name", err)
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
			t.Errorf("registration of c1 = %+v, want the claim, requested by bootstrap", record.Spec)
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
			t.Errorf("ClaimIRSA() of a reserved identity = %v, want 409", err)
		}
		h.clock.SetTime(h.clock.Now().Add(3 * time.Minute))
		if _, err := claims.ClaimIRSA(t.Context(), "c2", claimOf(bootARN), metav1.CreateOptions{}); err != nil {
			t.Errorf("ClaimIRSA() of a free identity = %v, want no error", err)
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
		t.Errorf("GetIRSA() without a claim = %v, want 404", err)
	}
	dry, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dry.Status.Hash != someHash {
		t.Errorf("ClaimIRSA() with dry run = %+v, %v, want hash %s", dry, err, someHash)
	}
	if h.record(t, "c1").Spec.IRSA != nil || h.reservedBy(t) != "" {
		t.Fatal("ClaimIRSA() with dry run stores a claim, want none")
	}
	for _, bad := range []*registerv1alpha1.ManagedClusterIRSA{claimOf(""), claimOf("x"), claimOf("arn:aws-cn:eks:cn-north-1:567890123456:cluster/spoke"),
		{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: bootARN, OIDCProvider: "https://x"}}} {
		if _, err := claims.ClaimIRSA(t.Context(), "c1", bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("ClaimIRSA(%+v) = %v, want 422", bad.Spec, err)
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
		t.Errorf("status of the claim = %+v, want the names of both roles", s)
	}
	for _, document := range []string{s.HubRole.TrustPolicy, s.HubRole.AccessPolicy, s.ManagedClusterRole.TrustPolicy, s.ManagedClusterRole.AccessPolicy} {
		if !json.Valid([]byte(document)) {
			t.Errorf("policy document = %s, want JSON", document)
		}
	}
	if !strings.Contains(s.ManagedClusterRole.TrustPolicy, "oidc.eks.us-west-2.amazonaws.com/id/ABC") || !strings.Contains(s.ManagedClusterRole.TrustPolicy, "system:serviceaccount:ns:agent") {
		t.Errorf("trust policy = %s, want the OIDC provider and the ServiceAccount", s.ManagedClusterRole.TrustPolicy)
	}

	// A repeated request is the same claim, with or without the ARN.
	before := h.record(t, "c1")
	if again, err := claims.ClaimIRSA(t.Context(), "c1", given, metav1.CreateOptions{}); err != nil || again.Status.Hash != someHash {
		t.Errorf("repeated ClaimIRSA() = %+v, %v, want hash %s", again, err, someHash)
	}
	if after := h.record(t, "c1"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("resourceVersion after a repeated ClaimIRSA() = %s, want %s", after.ResourceVersion, before.ResourceVersion)
	}
	if read, err := claims.GetIRSA(t.Context(), "c1", metav1.GetOptions{}); err != nil || read.Spec.ManagedClusterARN != bootARN {
		t.Errorf("GetIRSA() = %+v, %v, want %s", read, err, bootARN)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(strings.Replace(bootARN, "spoke", "other", 1)), metav1.CreateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "withdraw") {
		t.Errorf("ClaimIRSA() with another ARN = %v, want 409 that contains withdraw", err)
	}

	// A user who did not create the cluster and lacks permission to accept it cannot claim for it.
	h.grant("stranger", "create register:managedclusters/irsa", "delete register:managedclusters/irsa")
	stranger := h.as(t, "stranger")
	if _, err := stranger.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("ClaimIRSA() without permission = %v, want 403", err)
	}
	if err := h.withdraw(t, "stranger", "c1"); !apierrors.IsForbidden(err) {
		t.Errorf("withdrawal without permission = %v, want 403", err)
	}

	// A cluster that was accepted without a claim cannot claim an ARN.
	h.create(t, newCluster("c2"))
	h.put(t, decision("c2", true))
	if _, err := claims.ClaimIRSA(t.Context(), "c2", claimOf(strings.Replace(bootARN, "spoke", "other", 1)), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("ClaimIRSA() of a cluster that was accepted without a claim = %v, want 409", err)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c0", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("ClaimIRSA() of a cluster that does not exist = %v, want 404", err)
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

	// The requester cannot withdraw the claim of an accepted cluster.
	h.grant("bootstrap", "delete register:managedclusters/irsa")
	if err := h.withdraw(t, "bootstrap", "c1"); !apierrors.IsForbidden(err) {
		t.Errorf("withdrawal without permission = %v, want 403", err)
	}
	deleting := func(options metav1.DeleteOptions) ([]byte, error) {
		return h.rest(t, "admin", user.SystemPrivilegedGroup).Delete().Resource("managedclusters").Name("c1").SubResource("irsa").Body(&options).Do(t.Context()).Raw()
	}
	if _, err := deleting(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if _, err := deleting(metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}); err == nil || !apierrors.IsConflict(err) {
		t.Errorf("withdrawal with another UID = %v, want 409", err)
	}
	if !h.get(t, "c1").Spec.HubAcceptsClient || h.record(t, "c1").Spec.IRSA.Withdrawn {
		t.Fatal("claim after a refused withdrawal = withdrawn, want no change")
	}
	h.takeRevoked()

	raw, err := deleting(metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var answer registerv1alpha1.ManagedClusterIRSA
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Kind != "ManagedClusterIRSA" || answer.APIVersion != "register.open-cluster-management.io/v1alpha1" || answer.Status.Accepted {
		t.Errorf("response of the withdrawal = %s, %v, want a ManagedClusterIRSA that is not accepted", raw, err)
	}
	mc := h.get(t, "c1")
	if mc.Spec.HubAcceptsClient || mc.Status.Acceptance.Reason != "IRSA claim withdrawn" || !slices.Equal(h.takeRevoked(), []string{"c1"}) {
		t.Errorf("acceptance after the withdrawal = %+v, want a denial with a revocation", mc.Status.Acceptance)
	}
	// AWS may still contain resources of the claim. Until they are removed, the claim stays, and
	// acceptances and other claims are refused.
	if record := h.record(t, "c1"); record.Spec.IRSA == nil || !record.Spec.IRSA.Withdrawn || h.reservedBy(t) != "c1" {
		t.Errorf("registration after the withdrawal = %+v, want a withdrawn claim", record.Spec)
	}
	claims := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations()
	if _, err := claims.Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("Accept() during the withdrawal = %v, want 422", err)
	}
	if _, err := claims.ClaimIRSA(t.Context(), "c1", claimOf(bootARN), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("ClaimIRSA() during the withdrawal = %v, want 409", err)
	}
	if _, err := deleting(metav1.DeleteOptions{}); err != nil || h.record(t, "c1").Spec.IRSA == nil {
		t.Errorf("second withdrawal before AWS is cleaned up = %v and ended the claim = %t, want the claim", err, h.record(t, "c1").Spec.IRSA == nil)
	}
	provisioned(false)
	if _, err := deleting(metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if record := h.record(t, "c1"); record.Spec.IRSA != nil || record.Status.IRSA != nil || record.Spec.Driver != registerv1alpha1.DriverCSR || h.reservedBy(t) != "" {
		t.Errorf("registration after the withdrawal = %+v, want the driver csr without claim", record)
	}
	// The annotation is read once.
	if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, "c1")); err != nil {
		t.Fatal(err)
	}
	if h.record(t, "c1").Spec.IRSA != nil {
		t.Error("claim after a withdrawal = the claim of the annotation, want none")
	}

	// A claim without resources in AWS ends immediately. The user who created the claim may
	// withdraw it.
	h.create(t, newCluster("c2", registration.EKSARNAnnotation, bootARN))
	if err := h.withdraw(t, "bootstrap", "c2"); err != nil {
		t.Fatal(err)
	}
	if record := h.record(t, "c2"); record.Spec.IRSA != nil || h.reservedBy(t) != "" {
		t.Errorf("registration after the withdrawal = %+v, want no claim", record.Spec)
	}
	if err := h.withdraw(t, "bootstrap", "c2"); !apierrors.IsNotFound(err) {
		t.Errorf("second withdrawal = %v, want 404", err)
	}
	if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, "c2")); err != nil {
		t.Fatal(err)
	}
	if h.record(t, "c2").Spec.IRSA != nil {
		t.Error("claim after a withdrawal = the claim of the annotation, want none")
	}
}

// TestServerOwned checks that users can read registrations but not write them.
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
		t.Errorf("verbs = %v, want %v", verbs, want)
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
			t.Errorf("status code of %s = %d, want 405", what, code)
		}
	}
	code := 0
	client.Put().AbsPath(path, "c1", "status").Body([]byte(`{"metadata":{"name":"c1"}}`)).Do(t.Context()).StatusCode(&code)
	if code != http.StatusNotFound {
		t.Errorf("status code of the subresource status = %d, want 404", code)
	}
	table, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(table), `"c1"`) || !strings.Contains(string(table), `"csr"`) {
		t.Errorf("table = %s, %v, want c1 with driver csr", table, err)
	}
	raw, err := client.Put().AbsPath(path, "c1", "accept").Body([]byte(`{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAcceptance","metadata":{"name":"c1"},"spec":{"accepted":true}}`)).Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(raw), `"kind":"ManagedClusterAcceptance"`) || !strings.Contains(string(raw), `"apiVersion":"register.open-cluster-management.io/v1alpha1"`) {
		t.Errorf("response = %s, %v, want a ManagedClusterAcceptance", raw, err)
	}
	if !h.get(t, "c1").Spec.HubAcceptsClient {
		t.Error("spec.hubAcceptsClient = false, want true")
	}
}
