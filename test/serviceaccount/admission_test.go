package serviceaccount

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// Defects 1 and 4: the server rejects an invalid account when it is created. An agent does not need to
// detect it.
func TestManagedServiceAccountRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, c := range map[string]struct {
		change func(*authenticationv1beta1.ManagedServiceAccount)
		fields []string
	}{
		"invalid validity":           {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "abc" }, []string{"spec.rotation.validity"}},
		"validity below the minimum": {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "9m59s" }, []string{"spec.rotation.validity"}},
		"negative validity":          {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "-24h" }, []string{"spec.rotation.validity"}},
		"validity above the maximum": {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "87601h" }, []string{"spec.rotation.validity"}},
		"time to live of zero":       {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.TTLSecondsAfterCreation = new(int32) }, []string{"spec.ttlSecondsAfterCreation"}},
		"invalid audiences": {func(a *authenticationv1beta1.ManagedServiceAccount) {
			a.Spec.Audiences = []string{"vault", "", "vault"}
		},
			[]string{"spec.audiences[1]", "spec.audiences[2]"}},
		"name invalid for a ServiceAccount": {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Name = "Not_A_Name" }, []string{"metadata.name"}},
		"namespace without clusters":        {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Namespace = metav1.NamespaceDefault }, []string{"metadata.namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := framework.NewAccount(framework.Cluster1, "refused")
			c.change(bad)
			_, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(bad.Namespace).Create(t.Context(), bad, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), c.fields) {
				t.Errorf("Create(account with %s) = %v, want 422 for %v", name, err, c.fields)
			}
		})
	}
}

// Typed clients send omitted fields as enabled: false and validity: "0s". kubectl users omit the
// spec. Both mean the defaults.
func TestManagedServiceAccountFromUpstreamClients(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, manifest := range map[string]string{
		"typed-client": `{"apiVersion":"authentication.open-cluster-management.io/v1beta1","kind":"ManagedServiceAccount",
			"metadata":{"name":"typed-client","namespace":"cluster1","creationTimestamp":null},
			"spec":{"rotation":{"enabled":false,"validity":"0s"}},"status":{}}`,
		"no-spec": `{"apiVersion":"authentication.open-cluster-management.io/v1beta1","kind":"ManagedServiceAccount",
			"metadata":{"name":"no-spec","namespace":"cluster1"}}`,
		"deprecated": `{"apiVersion":"authentication.open-cluster-management.io/v1alpha1","kind":"ManagedServiceAccount",
			"metadata":{"name":"deprecated","namespace":"cluster1"},"spec":{"rotation":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := f.Kubectl(t, manifest, "apply", "-f", "-")
			if err != nil {
				t.Fatal(out)
			}
			defer func() {
				if out, err := f.Kubectl(t, "", "delete", "msa", "-n", framework.Cluster1, name); err != nil {
					t.Error(out)
				}
			}()
			if warned := strings.Contains(out, "is deprecated"); warned != (name == "deprecated") {
				t.Errorf("kubectl apply prints %s, want a deprecation warning for v1alpha1 only", out)
			}
			account, _ := f.AccountReported(t, framework.Cluster1, name)
			if account.Spec.Rotation.Validity != authenticationv1beta1.DefaultValidity.String() {
				t.Errorf("validity as read by upstream OCM agents = %s, want the default", account.Spec.Rotation.Validity)
			}
			left := time.Until(account.Status.ExpirationTimestamp.Time)
			if left < 8639*time.Hour || left > 8640*time.Hour {
				t.Errorf("remaining validity of the token = %s, want the default", left)
			}
		})
	}
}

// Defect 4: the conditions and columns of a new account report that it is pending, even if no agent
// processes it.
func TestManagedServiceAccountIsPendingFirst(t *testing.T) {
	t.Parallel()
	f := shared(t)
	pending := framework.CreateAccount(t, f.OCM, framework.NewAccount(f.SilentCluster(t), "pending"))
	for _, conditionType := range []string{authenticationv1beta1.ConditionSecretCreated, authenticationv1beta1.ConditionTokenReported} {
		condition := meta.FindStatusCondition(pending.Status.Conditions, conditionType)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != authenticationv1beta1.ReasonPending {
			t.Errorf("condition %s = %v, want False with reason Pending", conditionType, condition)
		}
	}
	out, err := f.Kubectl(t, "", "get", "msa", "-n", pending.Namespace)
	if err != nil {
		t.Fatal(out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if !slices.Equal(strings.Fields(lines[0]), []string{"NAME", "READY", "EXPIRES", "LAST", "ROTATED", "AGE"}) {
		t.Errorf("columns = %s, want NAME, READY, EXPIRES, LAST ROTATED and AGE", lines[0])
	}
	if cells := strings.Fields(lines[1]); len(cells) != 5 || !slices.Equal(cells[:4], []string{"pending", "False", "<none>", "<none>"}) {
		t.Errorf("row = %s, want a pending account without a token", lines[1])
	}
}

// A label and an annotation mark replicas of accounts for cluster sets. The server deletes replicas by
// these marks, so no client can set them.
func TestOnlyTheServerMarksReplicas(t *testing.T) {
	t.Parallel()
	f := shared(t)
	forged := framework.NewAccount(framework.Cluster1, "forged")
	forged.Labels = map[string]string{authenticationv1beta1.ParentNamespaceLabel: metav1.NamespaceDefault, "team": "blue"}
	forged.Annotations = map[string]string{authenticationv1beta1.ParentUIDAnnotation: "no-such-account"}
	created := framework.CreateAccount(t, f.OCM, forged)
	if len(created.Labels) != 1 || len(created.Annotations) != 0 {
		t.Errorf("created account has labels %v and annotations %v, want the label team only", created.Labels, created.Annotations)
	}
	patched := framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Patch(t.Context(), forged.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+authenticationv1beta1.ParentNamespaceLabel+`":"default"}}}`), metav1.PatchOptions{}))(t)
	if patched.Labels[authenticationv1beta1.ParentNamespaceLabel] != "" {
		t.Errorf("label %s after a patch = %q, want none", authenticationv1beta1.ParentNamespaceLabel, patched.Labels[authenticationv1beta1.ParentNamespaceLabel])
	}
}
