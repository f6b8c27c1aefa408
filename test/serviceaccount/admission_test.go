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

// Weaknesses 1 and 4: what cannot work is refused when it is written, and not
// found out later, or never, by an agent.
func TestManagedServiceAccountRefused(t *testing.T) {
	f := shared(t)
	for name, c := range map[string]struct {
		change func(*authenticationv1beta1.ManagedServiceAccount)
		fields []string
	}{
		"a validity that is no duration": {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "abc" }, []string{"spec.rotation.validity"}},
		"a validity that is too short":   {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "9m59s" }, []string{"spec.rotation.validity"}},
		"a negative validity":            {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "-24h" }, []string{"spec.rotation.validity"}},
		"a validity beyond the bound":    {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.Rotation.Validity = "87601h" }, []string{"spec.rotation.validity"}},
		"no time to live":                {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Spec.TTLSecondsAfterCreation = new(int32) }, []string{"spec.ttlSecondsAfterCreation"}},
		"bad audiences": {func(a *authenticationv1beta1.ManagedServiceAccount) {
			a.Spec.Audiences = []string{"vault", "", "vault"}
		},
			[]string{"spec.audiences[1]", "spec.audiences[2]"}},
		"a name that no ServiceAccount can have": {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Name = "Not_A_Name" }, []string{"metadata.name"}},
		"a namespace without clusters":           {func(a *authenticationv1beta1.ManagedServiceAccount) { a.Namespace = metav1.NamespaceDefault }, []string{"metadata.namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := framework.NewAccount(framework.Cluster1, "refused")
			c.change(bad)
			_, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(bad.Namespace).Create(t.Context(), bad, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), c.fields) {
				t.Errorf("got %v, not 422 for %v", err, c.fields)
			}
		})
	}
}

// Today's typed clients send what they leave out as enabled: false and validity:
// "0s"; kubectl users leave out the spec. Both mean the defaults.
func TestManagedServiceAccountAsTodaysClientsSendIt(t *testing.T) {
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
				t.Errorf("kubectl printed %s", out)
			}
			account, _ := f.AccountReported(t, framework.Cluster1, name)
			if account.Spec.Rotation.Validity != authenticationv1beta1.DefaultValidity.String() {
				t.Errorf("agents of today would read a validity of %s", account.Spec.Rotation.Validity)
			}
			left := time.Until(account.Status.ExpirationTimestamp.Time)
			if left < 8639*time.Hour || left > 8640*time.Hour {
				t.Errorf("the token is valid for %s, not for the default", left)
			}
		})
	}
}

// An account says where it stands from its first moment on, also where no agent
// looks at it (weakness 4), and its columns say the same.
func TestManagedServiceAccountIsPendingFirst(t *testing.T) {
	f := shared(t)
	pending := framework.CreateAccount(t, f.OCM, framework.NewAccount(f.SilentCluster(t), "pending"))
	for _, conditionType := range []string{authenticationv1beta1.ConditionSecretCreated, authenticationv1beta1.ConditionTokenReported} {
		condition := meta.FindStatusCondition(pending.Status.Conditions, conditionType)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != authenticationv1beta1.ReasonPending {
			t.Errorf("%s is %v", conditionType, condition)
		}
	}
	out, err := f.Kubectl(t, "", "get", "msa", "-n", pending.Namespace)
	if err != nil {
		t.Fatal(out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if !slices.Equal(strings.Fields(lines[0]), []string{"NAME", "READY", "EXPIRES", "LAST", "ROTATED", "AGE"}) {
		t.Errorf("the columns are %s", lines[0])
	}
	if cells := strings.Fields(lines[1]); len(cells) != 5 || !slices.Equal(cells[:4], []string{"pending", "False", "<none>", "<none>"}) {
		t.Errorf("the row is %s", lines[1])
	}
}

// The accounts that the server keeps for cluster sets are deleted by marks that
// nobody else can set or take off.
func TestOnlyTheServerMarksReplicas(t *testing.T) {
	f := shared(t)
	forged := framework.NewAccount(framework.Cluster1, "forged")
	forged.Labels = map[string]string{authenticationv1beta1.ParentNamespaceLabel: metav1.NamespaceDefault, "team": "blue"}
	forged.Annotations = map[string]string{authenticationv1beta1.ParentUIDAnnotation: "no-such-account"}
	created := framework.CreateAccount(t, f.OCM, forged)
	if len(created.Labels) != 1 || len(created.Annotations) != 0 {
		t.Errorf("it was created with %v and %v", created.Labels, created.Annotations)
	}
	patched := framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Patch(t.Context(), forged.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+authenticationv1beta1.ParentNamespaceLabel+`":"default"}}}`), metav1.PatchOptions{}))(t)
	if patched.Labels[authenticationv1beta1.ParentNamespaceLabel] != "" {
		t.Error("a patch set the mark of the server")
	}
}
