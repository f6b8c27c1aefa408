package validation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

func named(name string) *cluster.ManagedCluster {
	return &cluster.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestName(t *testing.T) {
	for name, want := range map[string][]string{
		"cluster1":              nil,
		strings.Repeat("a", 63): nil,
		strings.Repeat("a", 64): {"metadata.name: Invalid value"},
		"my.cluster":            {"metadata.name: Invalid value"},
		"Cluster":               {"metadata.name: Invalid value"},
		"":                      {"metadata.name: Required value"},
	} {
		fieldtest.Check(t, ManagedCluster.New(named(name)), want...)
	}
	inNamespace := named("cluster1")
	inNamespace.Namespace = "a"
	fieldtest.Check(t, ManagedCluster.New(inNamespace), "metadata.namespace: Forbidden")
}

func TestSpec(t *testing.T) {
	tests := map[string]struct {
		spec clusterv1.ManagedClusterSpec
		want []string
	}{
		"valid": {
			spec: clusterv1.ManagedClusterSpec{
				LeaseDurationSeconds: new(int32(60)),
				ManagedClusterClientConfigs: []clusterv1.ClientConfig{
					{URL: "https://api.example.com:6443", CABundle: certificate(t)},
					{URL: "https://[::1]/prefix"},
				},
				Taints: []clusterv1.Taint{
					{Key: "example.com/gpu", Value: "any text", Effect: clusterv1.TaintEffectNoSelect},
					{Key: "example.com/gpu", Effect: clusterv1.TaintEffectNoSelectIfNew},
				},
			},
		},
		"lease": {
			spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: new(int32(-1))},
			want: []string{"spec.leaseDurationSeconds: Invalid value"},
		},
		"client configs": {
			spec: clusterv1.ManagedClusterSpec{ManagedClusterClientConfigs: []clusterv1.ClientConfig{
				{}, {URL: "http://api.example.com"}, {URL: "https://"}, {URL: "https://a b"}, {URL: "api.example.com:6443"},
				{URL: "https://api.example.com", CABundle: []byte("no certificate")},
			}},
			want: []string{
				"spec.managedClusterClientConfigs[0].url: Required value",
				"spec.managedClusterClientConfigs[1].url: Invalid value",
				"spec.managedClusterClientConfigs[2].url: Invalid value",
				"spec.managedClusterClientConfigs[3].url: Invalid value",
				"spec.managedClusterClientConfigs[4].url: Invalid value",
				"spec.managedClusterClientConfigs[5].caBundle: Invalid value",
			},
		},
		"taints": {
			spec: clusterv1.ManagedClusterSpec{Taints: []clusterv1.Taint{
				{},
				{Key: "not a name", Effect: "NoSchedule"},
				{Key: "a", Effect: clusterv1.TaintEffectNoSelect, Value: strings.Repeat("x", 1025)},
				{Key: "b", Effect: clusterv1.TaintEffectNoSelect, Value: "1"},
				{Key: "b", Effect: clusterv1.TaintEffectNoSelect, Value: "2"},
			}},
			want: []string{
				"spec.taints[0].key: Required value",
				"spec.taints[0].effect: Required value",
				"spec.taints[1].key: Invalid value",
				"spec.taints[1].effect: Unsupported value",
				"spec.taints[2].value: Too long",
				"spec.taints[4]: Duplicate value",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mc := named("cluster1")
			mc.Spec = test.spec
			fieldtest.Check(t, ManagedCluster.New(mc), test.want...)
		})
	}
}

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "test"}, key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := certutil.EncodeCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestUpdateIgnoresStoredErrors(t *testing.T) {
	bad := clusterv1.ClientConfig{URL: "http://api.example.com"}
	old := named("Not.A.Label")
	old.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{bad}

	accepted := old.DeepCopy()
	accepted.Spec.HubAcceptsClient = true
	accepted.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://api.example.com"}, bad}
	fieldtest.Check(t, ManagedCluster.Update(accepted, old))

	worse := old.DeepCopy()
	worse.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{bad, {URL: "http://other.example.com"}}
	fieldtest.Check(t, ManagedCluster.Update(worse, old), "spec.managedClusterClientConfigs[1].url: Invalid value")

	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"region": "north"}
	fieldtest.Check(t, ManagedCluster.Update(labelled, old))
}

func TestStatus(t *testing.T) {
	old := named("cluster1")
	mc := old.DeepCopy()
	mc.Status = clusterv1.ManagedClusterStatus{
		Conditions:    []metav1.Condition{{Type: "ManagedClusterJoined", Status: metav1.ConditionTrue, Reason: "Joined"}},
		Capacity:      clusterv1.ResourceList{"cpu": resource.MustParse("4"), "example.com/gpu": resource.MustParse("-1")},
		Allocatable:   clusterv1.ResourceList{"": resource.MustParse("1")},
		ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "id.k8s.io", Value: "1"}, {}, {Name: "id.k8s.io", Value: "2"}},
	}
	fieldtest.Check(t, ManagedCluster.UpdateStatus(mc, old),
		"status.conditions[0].lastTransitionTime: Required value",
		"status.capacity[example.com/gpu]: Invalid value",
		"status.allocatable[]: Required value",
		"status.clusterClaims[1].name: Required value",
		"status.clusterClaims[2].name: Duplicate value")
	fieldtest.Check(t, ManagedCluster.UpdateStatus(mc, mc.DeepCopy()))
}

func TestStatusOfNamespaces(t *testing.T) {
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "NamespaceApplied", LastTransitionTime: metav1.Now()}
	}
	old := named("cluster1")
	mc := old.DeepCopy()
	mc.Status.ManagedNamespaces = []clusterv1.ClusterSetManagedNamespaceConfig{
		{Name: "shop", ClusterSet: "prod", Conditions: []metav1.Condition{condition("NamespaceAvailable"), condition("B"), condition("C"), condition("D")}},
		{Name: "shop", ClusterSet: "global"},
	}
	fieldtest.Check(t, ManagedCluster.UpdateStatus(mc, old))
	mc.Status.ManagedNamespaces[0].Conditions = append(mc.Status.ManagedNamespaces[0].Conditions, condition("E"))
	mc.Status.ManagedNamespaces[1].Conditions = []metav1.Condition{{Type: "NamespaceAvailable", Status: metav1.ConditionTrue, Reason: "NamespaceApplied"}}
	fieldtest.Check(t, ManagedCluster.UpdateStatus(mc, old),
		"status.managedNamespaces[0].conditions: Too many",
		"status.managedNamespaces[1].conditions[0].lastTransitionTime: Required value")
}
