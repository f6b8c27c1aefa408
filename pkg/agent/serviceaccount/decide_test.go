package serviceaccount

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

var issued = time.Unix(1_800_000_000, 0)

func testOwner() *v1beta1.ManagedServiceAccount {
	return &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster", Name: "name", UID: "owner"}}
}

func testAccount(uid, label, madeFor string) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "name", UID: types.UID(uid)}}
	if label != "" {
		account.Labels = map[string]string{v1beta1.ManagedServiceAccountLabel: label}
	}
	if madeFor != "" {
		account.Annotations = map[string]string{OwnerUIDAnnotation: madeFor}
	}
	return account
}

func TestJudgeAccount(t *testing.T) {
	deleting := testAccount("uid", "me", "owner")
	deleting.DeletionTimestamp = &metav1.Time{Time: issued}
	foreignDeleting := testAccount("uid", "you", "")
	foreignDeleting.DeletionTimestamp = &metav1.Time{Time: issued}
	for what, test := range map[string]struct {
		account  *corev1.ServiceAccount
		recorded types.UID
		reported bool
		want     accountVerdict
	}{
		"ours":                                     {testAccount("uid", "me", "owner"), "", false, usable},
		"ours, recorded":                           {testAccount("uid", "me", "owner"), "uid", false, usable},
		"ours, another recorded":                   {testAccount("uid", "me", "owner"), "old", false, usable},
		"of a previous owner":                      {testAccount("uid", "me", "before"), "", false, outlived},
		"handed over":                              {testAccount("uid", "me", ""), "", false, unclaimed},
		"label removed":                            {testAccount("uid", "", "owner"), "uid", false, unclaimed},
		"label changed":                            {testAccount("uid", "you", "owner"), "uid", false, unclaimed},
		"unlabelled":                               {testAccount("uid", "", ""), "", false, foreign},
		"unlabelled, copied marks":                 {testAccount("uid", "", "owner"), "", false, foreign},
		"unlabelled, other recorded":               {testAccount("uid", "", ""), "old", false, foreign},
		"of another agent":                         {testAccount("uid", "you", "owner"), "", false, foreign},
		"of an upstream OCM agent":                 {testAccount("uid", "true", ""), "", false, foreign},
		"without UID, none recorded":               {testAccount("", "", ""), "", false, foreign},
		"being deleted":                            {deleting, "", false, terminating},
		"of another, being deleted":                {foreignDeleting, "", false, foreign},
		"of another, previously recorded":          {foreignDeleting, "uid", false, terminating},
		"of a previous owner, recorded":            {testAccount("uid", "me", "before"), "uid", true, unclaimed},
		"of a previous owner, reported":            {testAccount("uid", "me", "before"), "", true, unclaimed},
		"of a previous owner, another is recorded": {testAccount("uid", "me", "before"), "old", true, outlived},
	} {
		if got := judgeAccount(test.account, "me", "owner", test.recorded, test.reported); got != test.want {
			t.Errorf("%s: judgeAccount() = %d, want %d", what, got, test.want)
		}
	}
}

// goodFacts returns the facts about an account without problems, ten minutes after its token was
// issued for one hour.
func goodFacts() facts {
	f := facts{
		now: issued.Add(10 * time.Minute), account: testAccount("uid", "me", "owner"), owner: testOwner(),
		request: `{"validity":"1h0m0s"}`, ca: []byte("ca"), ownership: ours, verdict: accepted,
	}
	f.secret = desired(&corev1.Secret{}, f.owner, []byte(tokenOf("uid", issued, time.Hour).sign()), f.ca, f.request)
	return f
}

func TestJudge(t *testing.T) {
	setToken := func(p payload) func(*facts) {
		return func(f *facts) { f.secret.Data[v1beta1.SecretTokenKey] = []byte(p.sign()) }
	}
	other := tokenOf("uid", issued, time.Hour)
	other["sub"] = "system:serviceaccount:elsewhere:name"
	for what, test := range map[string]struct {
		change func(*facts)
		want   plan
	}{
		"up to date":             {change: func(*facts) {}},
		"not reviewed yet":       {change: func(f *facts) { f.verdict = notAsked }, want: plan{ask: true}},
		"absent":                 {change: func(f *facts) { f.ownership, f.secret = absent, nil }, want: plan{mint: true, dead: true, write: true}},
		"new":                    {change: func(f *facts) { f.ownership, f.secret = unread, nil }, want: plan{mint: true, dead: true, write: true}},
		"no token":               {change: func(f *facts) { delete(f.secret.Data, v1beta1.SecretTokenKey) }, want: plan{mint: true, dead: true, write: true}},
		"malformed":              {change: func(f *facts) { f.secret.Data[v1beta1.SecretTokenKey] = []byte("x") }, want: plan{mint: true, dead: true, write: true}},
		"other namespace":        {change: setToken(other), want: plan{mint: true, dead: true, write: true}},
		"previous UID":           {change: setToken(tokenOf("old", issued, time.Hour)), want: plan{mint: true, dead: true, write: true}},
		"expired":                {change: func(f *facts) { f.now = issued.Add(time.Hour) }, want: plan{mint: true, dead: true, write: true}},
		"rejected":               {change: func(f *facts) { f.verdict = rejected }, want: plan{mint: true, dead: true, write: true}},
		"other request":          {change: func(f *facts) { f.request = `{"validity":"2h0m0s"}` }, want: plan{mint: true, write: true}},
		"due":                    {change: func(f *facts) { f.now = issued.Add(48 * time.Minute) }, want: plan{mint: true, write: true}},
		"not yet due":            {change: func(f *facts) { f.now = issued.Add(45*time.Minute - time.Second) }},
		"no token, not reviewed": {change: func(f *facts) { f.verdict, f.secret.Data = notAsked, nil }, want: plan{mint: true, dead: true, write: true}},
		"earlier expiry in the status": {change: func(f *facts) {
			f.owner.Status.TokenSecretRef = &v1beta1.TokenSecretReference{LastRefreshTimestamp: metav1.NewTime(issued)}
			f.owner.Status.ExpirationTimestamp = &metav1.Time{Time: issued.Add(12 * time.Minute)}
		}, want: plan{mint: true, write: true}},
		"expiry of another token in the status": {change: func(f *facts) {
			f.owner.Status.TokenSecretRef = &v1beta1.TokenSecretReference{LastRefreshTimestamp: metav1.NewTime(issued.Add(-time.Hour))}
			f.owner.Status.ExpirationTimestamp = &metav1.Time{Time: issued.Add(5 * time.Minute)}
		}},
		"other CA":    {change: func(f *facts) { f.ca = []byte("new") }, want: plan{write: true}},
		"more data":   {change: func(f *facts) { f.secret.Data["more"] = nil }, want: plan{write: true}},
		"no label":    {change: func(f *facts) { f.secret.Labels = nil }, want: plan{write: true}},
		"no owner":    {change: func(f *facts) { f.secret.OwnerReferences = nil }, want: plan{write: true}},
		"other marks": {change: func(f *facts) { f.secret.Labels["x"], f.secret.Annotations["y"] = "y", "z" }},
		"other owners": {change: func(f *facts) {
			f.secret.OwnerReferences = append(f.secret.OwnerReferences, metav1.OwnerReference{UID: "x"})
		}},
	} {
		f := goodFacts()
		test.change(&f)
		got := judge(f)
		if got.ask != test.want.ask || got.mint != test.want.mint || got.dead != test.want.dead || got.write != test.want.write {
			t.Errorf("%s: judge() = %+v, want %+v", what, got, test.want)
		}
	}
}

func TestOwnershipOf(t *testing.T) {
	const sub = "system:serviceaccount:ns:name"
	for what, test := range map[string]struct {
		change func(*corev1.Secret)
		known  bool
		want   ownership
	}{
		"ours":                           {func(*corev1.Secret) {}, false, ours},
		"label lost, known":              {func(s *corev1.Secret) { s.Labels = nil }, true, ours},
		"label lost, unknown":            {func(s *corev1.Secret) { s.Labels = nil }, false, taken},
		"owner lost, known":              {func(s *corev1.Secret) { s.OwnerReferences = nil }, true, ours},
		"owner lost, unknown":            {func(s *corev1.Secret) { s.OwnerReferences = nil }, false, taken},
		"both lost":                      {func(s *corev1.Secret) { s.OwnerReferences, s.Labels = nil, nil }, true, taken},
		"owner and token lost":           {func(s *corev1.Secret) { s.OwnerReferences, s.Data = nil, nil }, true, taken},
		"of a previous account":          {func(s *corev1.Secret) { s.OwnerReferences[0].UID = "before" }, false, former},
		"previous, known":                {func(s *corev1.Secret) { s.OwnerReferences[0].UID = "before" }, true, former},
		"previous, unlabelled":           {func(s *corev1.Secret) { s.OwnerReferences[0].UID, s.Labels = "before", nil }, false, taken},
		"owner in another API version":   {func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = v1beta1.GroupName + "/v1alpha1" }, false, ours},
		"UID of another kind":            {func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "ConfigMap" }, false, taken},
		"other type":                     {func(s *corev1.Secret) { s.Type = corev1.SecretTypeTLS }, true, taken},
		"labelled, but of another owner": {func(s *corev1.Secret) { s.OwnerReferences, s.Data = nil, nil }, false, taken},
		"another account's reference":    {func(s *corev1.Secret) { s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "x", "x" }, false, taken},
	} {
		f := goodFacts()
		test.change(f.secret)
		if got := ownershipOf(f.secret, f.owner, test.known, sub); got != test.want {
			t.Errorf("%s: ownershipOf() = %d, want %d", what, got, test.want)
		}
	}
}

func TestLook(t *testing.T) {
	good := func() (*checked, *v1beta1.ManagedServiceAccountStatus) {
		return &checked{
			held:    claims{accountUID: "uid", issued: issued, expires: issued.Add(time.Hour)},
			request: "r", ca: "ca", next: issued.Add(20 * time.Minute),
		}, &v1beta1.ManagedServiceAccountStatus{}
	}
	now := issued.Add(10 * time.Minute)
	nudged := func(reason string) *v1beta1.ManagedServiceAccountStatus {
		return &v1beta1.ManagedServiceAccountStatus{Conditions: []metav1.Condition{{Type: v1beta1.ConditionSecretCreated, Status: metav1.ConditionFalse, Reason: reason}}}
	}
	c, status := good()
	said := func(due, routine bool) string {
		switch {
		case routine && due:
			return "routine"
		case due:
			return "change"
		case routine:
			return "a routine that is not due"
		}
		return ""
	}
	for what, test := range map[string]struct{ got, want string }{
		"up to date":             {said(look(c, "uid", "r", "ca", status, now, now)), ""},
		"first look":             {said(look(nil, "uid", "r", "ca", status, now, now)), "routine"},
		"another ServiceAccount": {said(look(c, "new", "r", "ca", status, now, now)), "change"},
		"another spec":           {said(look(c, "uid", "q", "ca", status, now, now)), "change"},
		"another CA":             {said(look(c, "uid", "r", "new", status, now, now)), "routine"},
		"due":                    {said(look(c, "uid", "r", "ca", status, now, issued.Add(48*time.Minute))), "change"},
		"interval":               {said(look(c, "uid", "r", "ca", status, issued.Add(20*time.Minute), now)), "routine"},
		"the Secret is missing":  {said(look(c, "uid", "r", "ca", nudged(v1beta1.ReasonSecretMissing), now, now)), "change"},
		"the Secret has changed": {said(look(c, "uid", "r", "ca", nudged(v1beta1.ReasonSecretChanged), now, now)), "change"},
	} {
		if test.got != test.want {
			t.Errorf("%s: look() = %q, want %q", what, test.got, test.want)
		}
	}
	if got := said(look(c, "uid", "r", "ca", nudged(v1beta1.ReasonSecretConflict), now, now)); got != "" {
		t.Errorf("look() after a conflict that the agent reported = %q, want none", got)
	}
}

func TestIdentity(t *testing.T) {
	if got := Identity("hub", "cluster1"); len(got) != 40 || got == Identity("hub", "cluster2") || got == Identity("hub2", "cluster1") {
		t.Errorf("Identity(hub, cluster1) = %s, want 40 characters that are unique for hub and cluster", got)
	}
}
