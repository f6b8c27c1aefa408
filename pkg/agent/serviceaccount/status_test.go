package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

func wellReport() *report {
	return &report{
		account: &v1beta1.ServiceAccountReference{Namespace: "ns", Name: "name", UID: "uid"},
		stored:  &v1beta1.TokenSecretReference{Name: "name", LastRefreshTimestamp: metav1.NewTime(issued), ResourceVersion: "7"},
		expires: issued.Add(time.Hour),
	}
}

// TestReport applies reports to the status of an account whose token is valid for one hour. It also
// checks that applying a report again does not change the status.
func TestReport(t *testing.T) {
	good := wellReport().on(v1beta1.ManagedServiceAccountStatus{
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionNamespaceManaged, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNotManaged}},
	}, 1, issued)
	failed := finding{v1beta1.ReasonTokenReportFailed, "token request: no"}
	conflict := finding{v1beta1.ReasonSecretConflict, "Secret of somebody"}
	disowned := finding{v1beta1.ReasonServiceAccountConflict, "ServiceAccount of somebody"}
	early, late := issued.Add(time.Minute), issued.Add(time.Hour)
	type reasons struct{ account, secret, token string }
	for what, test := range map[string]struct {
		report *report
		before *v1beta1.ManagedServiceAccountStatus
		now    time.Time
		want   reasons
		refs   bool
	}{
		"valid token":                  {wellReport(), nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "TokenReported"}, true},
		"empty report":                 {&report{}, nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "TokenReported"}, true},
		"rotation fails":               {&report{tokenFailed: failed}, nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "TokenReportFailed"}, true},
		"rotation fails until expiry":  {&report{tokenFailed: failed}, nil, late, reasons{"ServiceAccountPresent", "SecretCreated", "TokenExpired"}, false},
		"dead token":                   {&report{tokenFailed: failed, dead: true}, nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "TokenReportFailed"}, false},
		"Secret deleted":               {&report{tokenFailed: failed, secretFailed: finding{v1beta1.ReasonSecretMissing, "gone"}, dead: true}, nil, early, reasons{"ServiceAccountPresent", "SecretMissing", "TokenReportFailed"}, false},
		"Secret of another owner":      {&report{tokenFailed: conflict, secretFailed: conflict}, nil, early, reasons{"ServiceAccountPresent", "SecretConflict", "SecretConflict"}, false},
		"Secret inaccessible":          {&report{tokenFailed: conflict}, nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "SecretConflict"}, true},
		"account of another owner":     {&report{accountFailed: disowned, tokenFailed: disowned, disowned: true, dead: true}, nil, early, reasons{"ServiceAccountConflict", "SecretCreated", "ServiceAccountConflict"}, false},
		"invalid spec":                 {&report{tokenFailed: finding{v1beta1.ReasonInvalidSpec, "x"}}, nil, early, reasons{"ServiceAccountPresent", "SecretCreated", "InvalidSpec"}, true},
		"invalid spec until expiry":    {&report{tokenFailed: finding{v1beta1.ReasonInvalidSpec, "x"}}, nil, late, reasons{"ServiceAccountPresent", "SecretCreated", "InvalidSpec"}, false},
		"new, token fails":             {&report{account: wellReport().account, tokenFailed: failed}, &v1beta1.ManagedServiceAccountStatus{}, early, reasons{"ServiceAccountPresent", "TokenReportFailed", "TokenReportFailed"}, false},
		"new, invalid spec":            {&report{account: wellReport().account, tokenFailed: finding{v1beta1.ReasonInvalidSpec, "x"}}, &v1beta1.ManagedServiceAccountStatus{}, early, reasons{"ServiceAccountPresent", "InvalidSpec", "InvalidSpec"}, false},
		"new, ServiceAccount rejected": {&report{accountFailed: finding{v1beta1.ReasonServiceAccountFailed, "x"}, tokenFailed: failed, dead: true}, &v1beta1.ManagedServiceAccountStatus{}, early, reasons{"ServiceAccountFailed", "TokenReportFailed", "TokenReportFailed"}, false},
	} {
		before := good
		if test.before != nil {
			before = *test.before
		}
		after := test.report.on(before, 1, test.now)
		got := reasons{}
		for kind, to := range map[string]*string{
			v1beta1.ConditionAllServiceAccountPresent: &got.account, v1beta1.ConditionSecretCreated: &got.secret, v1beta1.ConditionTokenReported: &got.token,
		} {
			condition := meta.FindStatusCondition(after.Conditions, kind)
			if condition == nil {
				t.Fatalf("%s: condition %s is missing", what, kind)
			}
			*to = condition.Reason
			if (condition.Status == metav1.ConditionTrue) != (condition.Reason == v1beta1.ReasonServiceAccountPresent || condition.Reason == v1beta1.ReasonSecretCreated || condition.Reason == v1beta1.ReasonTokenReported) {
				t.Errorf("%s: condition %s = %s with reason %s, want True only for a success", what, kind, condition.Status, condition.Reason)
			}
		}
		if got != test.want {
			t.Errorf("%s: reasons = %+v, want %+v", what, got, test.want)
		}
		if refs := after.TokenSecretRef != nil && after.ExpirationTimestamp != nil; refs != test.refs {
			t.Errorf("%s: status has a token reference = %t, want %t", what, refs, test.refs)
		}
		if test.before == nil && meta.FindStatusCondition(after.Conditions, v1beta1.ConditionNamespaceManaged) == nil {
			t.Errorf("%s: the condition of another writer was removed, want it kept", what)
		}
		if again := test.report.on(after, 1, test.now.Add(time.Minute)); !equality.Semantic.DeepEqual(again, after) {
			t.Errorf("%s: status after a second report = %+v, want it unchanged: %+v", what, again, after)
		}
	}
}

// TestDescribe checks that repetitions of the same error have the same text.
func TestDescribe(t *testing.T) {
	dial := func(port int) error {
		return fmt.Errorf("token request: %w", &url.Error{Op: "Post", URL: "https://10.0.0.1", Err: &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{Port: 6443}, Err: errors.New("connection reset by peer"),
		}})
	}
	if a, b := describe(dial(1)), describe(dial(2)); a != b || a != "token request: read: connection reset by peer" {
		t.Errorf("describe() = %q and %q for two ports, want the same text without ports", a, b)
	}
	if got := describe(fmt.Errorf("get Secret: %w", context.DeadlineExceeded)); got != "get Secret: timed out" {
		t.Errorf("describe(DeadlineExceeded) = %q, want \"get Secret: timed out\"", got)
	}
	if got := describe(errors.New("plain")); got != "plain" {
		t.Errorf("describe(plain) = %q, want plain", got)
	}
}

// TestCA checks that a failed read keeps the last CA, and that an empty CA is one.
func TestCA(t *testing.T) {
	var content []byte
	var failed error
	c, err := New(Config{
		ClusterName: "c1", Workers: 1, Hub: ocmfake.NewClientset(), Managed: fake.NewClientset(), Clock: clock.RealClock{},
		CA: func() ([]byte, error) { return content, failed },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		content string
		err     error
		want    caBundle
	}{
		{err: io.EOF, want: caBundle{err: io.EOF}},
		{want: caBundle{}},
		{content: "a", want: caBundle{content: "a"}},
		{err: io.EOF, want: caBundle{content: "a"}},
		{content: "b", want: caBundle{content: "b"}},
	} {
		content, failed = []byte(step.content), step.err
		c.readCA(t.Context())
		if got := *c.ca.Load(); got != step.want {
			t.Errorf("CA after reading (%q, %v) = %+v, want %+v", step.content, step.err, got, step.want)
		}
	}
}
