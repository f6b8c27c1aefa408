package validation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

var bounded = Validator{MaximumValidity: 48 * time.Hour}

func named(name string) *authentication.ManagedServiceAccount {
	return &authentication.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name}, Spec: valid("24h")}
}

func valid(validity string) authenticationv1beta1.ManagedServiceAccountSpec {
	return authenticationv1beta1.ManagedServiceAccountSpec{Rotation: authenticationv1beta1.ManagedServiceAccountRotation{Validity: validity}}
}

func TestName(t *testing.T) {
	for name, want := range map[string][]string{
		"a":                      nil,
		"team.bot-1":             nil,
		strings.Repeat("a", 253): nil,
		strings.Repeat("a", 254): {"metadata.name: Invalid value"},
		"Bot":                    {"metadata.name: Invalid value"},
		"a/b":                    {"metadata.name: Invalid value"},
		"":                       {"metadata.name: Required value"},
	} {
		fieldtest.Check(t, bounded.Rules().New(named(name)), want...)
	}
}

func TestReservedNames(t *testing.T) {
	for name, reserved := range map[string]bool{
		"cluster-proxy": true, "cluster-proxy-2": false, "klusterlet-work-sa": true, "klusterlet": false,
		"default": true, "my-default": false, "hypershift-addon-agent-sa": true,
	} {
		var want []string
		if reserved {
			want = []string{"metadata.name: Forbidden"}
		}
		fieldtest.Check(t, Validator{ReservedNames: DefaultReservedNames()}.Rules().New(named(name)), want...)
		// Stored accounts stay usable. An empty flag reserves no names.
		changed := named(name)
		changed.Spec.Audiences = []string{"a"}
		fieldtest.Check(t, Validator{ReservedNames: DefaultReservedNames()}.Rules().Update(changed, named(name)))
		fieldtest.Check(t, Validator{}.Rules().New(named(name)))
	}
}

func TestValidity(t *testing.T) {
	const path = "spec.rotation.validity: Invalid value"
	for validity, want := range map[string][]string{
		"10m":       nil,
		"48h":       nil,
		"1h30m0.5s": nil,
		"9m59s":     {path},
		"48h1s":     {path},
		"abc":       {path},
		"24":        {path},
		"-1h":       {path},
		"1d":        {path},
		// The default exceeds this bound.
		"":   {path},
		"0s": {path},
	} {
		account := named("a")
		account.Spec = valid(validity)
		fieldtest.Check(t, bounded.Rules().New(account), want...)
	}
	for _, validity := range []string{"", "0s", "0", "8640h0m0s", "1000000h"} {
		account := named("a")
		account.Spec = valid(validity)
		fieldtest.Check(t, Validator{}.Rules().New(account))
	}
}

func TestAudiencesAndTTL(t *testing.T) {
	account := named("a")
	account.Spec.Audiences = []string{"vault", "", "vault", "other"}
	account.Spec.TTLSecondsAfterCreation = new(int32(-1))
	fieldtest.Check(t, bounded.Rules().New(account), "spec.audiences[1]: Required value", "spec.audiences[2]: Duplicate value", "spec.ttlSecondsAfterCreation: Invalid value")
	account.Spec.Audiences = []string{"vault", "other"}
	account.Spec.TTLSecondsAfterCreation = new(int32(1))
	fieldtest.Check(t, bounded.Rules().New(account))
}

// Errors in the stored object do not reject changes of other parts.
func TestUpdateIgnoresStoredErrors(t *testing.T) {
	old := named("a")
	old.Spec = valid("abc")

	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"team": "blue"}
	fieldtest.Check(t, bounded.Rules().Update(labelled, old))

	elsewhere := old.DeepCopy()
	elsewhere.Spec.Audiences = []string{"vault"}
	fieldtest.Check(t, bounded.Rules().Update(elsewhere, old))

	elsewhere.Spec.Audiences = []string{""}
	fieldtest.Check(t, bounded.Rules().Update(elsewhere, old), "spec.audiences[0]: Required value")

	worse := old.DeepCopy()
	worse.Spec = valid("5m")
	fieldtest.Check(t, bounded.Rules().Update(worse, old), "spec.rotation.validity: Invalid value")

	mended := old.DeepCopy()
	mended.Spec = valid("24h")
	fieldtest.Check(t, bounded.Rules().Update(mended, old))
}

func TestStatus(t *testing.T) {
	old := named("a")
	good := old.DeepCopy()
	good.Status = authenticationv1beta1.ManagedServiceAccountStatus{
		Conditions:        []metav1.Condition{{Type: "TokenReported", Status: "True", Reason: "TokenReported", LastTransitionTime: metav1.Now()}},
		TokenSecretRef:    &authenticationv1beta1.TokenSecretReference{Name: "a", LastRefreshTimestamp: metav1.Now()},
		ServiceAccountRef: &authenticationv1beta1.ServiceAccountReference{Namespace: "accounts", Name: "a", UID: "1"},
		Clusters:          &authenticationv1beta1.ClusterSummary{Total: 2, Ready: 1, Failing: []authenticationv1beta1.ClusterFailure{{Name: "cluster2", Reason: "Pending"}}},
	}
	fieldtest.Check(t, bounded.Rules().UpdateStatus(good, old))

	bad := old.DeepCopy()
	bad.Status = authenticationv1beta1.ManagedServiceAccountStatus{
		Conditions:        []metav1.Condition{{Type: "TokenReported"}},
		TokenSecretRef:    &authenticationv1beta1.TokenSecretReference{Name: "b"},
		ServiceAccountRef: &authenticationv1beta1.ServiceAccountReference{Namespace: "Not A Namespace", Name: "b"},
		Clusters: &authenticationv1beta1.ClusterSummary{Total: -1, Ready: -1, Failing: []authenticationv1beta1.ClusterFailure{
			{Name: ""}, {Name: "cluster2"}, {Name: "cluster2"},
		}},
	}
	fieldtest.Check(t, bounded.Rules().UpdateStatus(bad, old),
		"status.conditions[0].status: Required value", "status.conditions[0].reason: Required value", "status.conditions[0].lastTransitionTime: Required value",
		"status.tokenSecretRef.name: Invalid value",
		"status.serviceAccountRef.namespace: Invalid value", "status.serviceAccountRef.name: Invalid value",
		"status.clusters.total: Invalid value", "status.clusters.ready: Invalid value",
		"status.clusters.failing[0].name: Required value", "status.clusters.failing[2].name: Duplicate value")
}
