package serviceaccount

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// Everything in this file is pure: it decides on facts that others gathered.

// accountVerdict is what a ServiceAccount of the right name means.
type accountVerdict int

const (
	// usable is ours.
	usable accountVerdict = iota
	// unclaimed is ours, but does not say so completely.
	unclaimed
	// outlived is ours, of a former ManagedServiceAccount with the same name.
	outlived
	// terminating is ours, and being deleted.
	terminating
	// foreign is somebody else's.
	foreign
)

// judgeAccount decides whose ServiceAccount this is. Recorded is the UID that
// the status has for it.
func judgeAccount(account *corev1.ServiceAccount, identity string, owner, recorded types.UID) accountVerdict {
	labelled := account.Labels[v1beta1.ManagedServiceAccountLabel] == identity
	madeFor := types.UID(account.Annotations[OwnerUIDAnnotation])
	switch {
	case !labelled && (recorded == "" || recorded != account.UID):
		return foreign
	case account.DeletionTimestamp != nil:
		return terminating
	case !labelled || madeFor == "":
		return unclaimed
	case madeFor != owner:
		return outlived
	}
	return usable
}

// place is where the Secret of a name is, as far as the agent can see.
type place int

const (
	// unread is not looked for, since nobody can have made it yet.
	unread place = iota
	// absent does not exist.
	absent
	// ours is the agent's.
	ours
	// former belonged to a ManagedServiceAccount of the same name, and is about
	// to be collected as garbage.
	former
	// taken is somebody else's.
	taken
	// hidden exists, and the agent may not read it: it is somebody else's, or
	// the hub has yet to grant access to it.
	hidden
)

// placeOf decides whose Secret this is. Known is whether the agent has stored a
// token in a Secret of this name before: then what is left of its marks is
// enough, and the others are restored.
func placeOf(secret *corev1.Secret, owner *v1beta1.ManagedServiceAccount, known bool, wantedSubject string) place {
	if secret.Type != corev1.SecretTypeOpaque {
		return taken
	}
	labelled := secret.Labels[v1beta1.ManagedServiceAccountLabel] == "true"
	var owned, orphaned bool
	for _, ref := range secret.OwnerReferences {
		if !refersToAccount(ref) || ref.Name != owner.Name {
			continue
		}
		if ref.UID == owner.UID {
			owned = true
		} else {
			orphaned = true
		}
	}
	switch {
	case owned && (labelled || known):
		return ours
	case orphaned && labelled:
		return former
	case known && labelled:
		if held, err := parseToken(string(secret.Data[v1beta1.SecretTokenKey])); err == nil && held.subject == wantedSubject {
			return ours
		}
	}
	return taken
}

func refersToAccount(ref metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == v1beta1.GroupName && ref.Kind == "ManagedServiceAccount"
}

// desired returns the Secret as it should be, holding a token. What others put
// on it stays, but for its data.
func desired(secret *corev1.Secret, owner *v1beta1.ManagedServiceAccount, token []byte, ca []byte, request string) *corev1.Secret {
	result := secret.DeepCopy()
	result.Name, result.Namespace, result.Type = owner.Name, owner.Namespace, corev1.SecretTypeOpaque
	metav1.SetMetaDataLabel(&result.ObjectMeta, v1beta1.ManagedServiceAccountLabel, "true")
	metav1.SetMetaDataAnnotation(&result.ObjectMeta, RequestAnnotation, request)
	ref := metav1.OwnerReference{
		APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: owner.Name, UID: owner.UID,
	}
	if i := slices.IndexFunc(result.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }); i >= 0 {
		result.OwnerReferences[i] = ref
	} else {
		result.OwnerReferences = append(result.OwnerReferences, ref)
	}
	result.Data = map[string][]byte{v1beta1.SecretTokenKey: token, v1beta1.SecretCAKey: ca}
	return result
}

// cause is why a token is requested; empty for none.
type cause string

const (
	causeMissing   cause = "missing"
	causeMalformed cause = "malformed"
	// causeOther is for a token of another ServiceAccount, or of one in another namespace.
	causeOther cause = "other-account"
	// causeReplaced is for a token of a ServiceAccount that was deleted and made again.
	causeReplaced cause = "account-replaced"
	causeExpired  cause = "expired"
	// causeRejected is for a token that the managed cluster does not accept.
	causeRejected cause = "rejected"
	// causeRequest is for a spec that asks for something else by now.
	causeRequest cause = "spec-changed"
	causeDue     cause = "due"
)

// dead reports whether the token that has to be replaced is of no use.
func (c cause) dead() bool { return c != "" && c != causeRequest && c != causeDue }

// verdict is the managed cluster's on a token.
type verdict int

const (
	notAsked verdict = iota
	accepted
	rejected
)

// facts is what judge goes by.
type facts struct {
	// now is the time by the managed cluster's clock.
	now     time.Time
	account *corev1.ServiceAccount
	owner   *v1beta1.ManagedServiceAccount
	request string
	ca      []byte
	place   place
	// secret is the Secret, if it is ours.
	secret  *corev1.Secret
	verdict verdict
}

// plan is what judge decides.
type plan struct {
	// ask is whether the managed cluster has to be asked about the token
	// before anything else is decided.
	ask bool
	// mint is why a new token is needed; empty if the present one stays.
	mint cause
	// write is whether the Secret is not as it should be.
	write bool
	// held is about the token in the Secret, if it is good.
	held claims
}

// judge decides about the Secret of an account: one that is ours, absent or unread.
func judge(f facts) plan {
	if f.place != ours {
		return plan{mint: causeMissing, write: true}
	}
	token := f.secret.Data[v1beta1.SecretTokenKey]
	held, err := parseToken(string(token))
	if err == nil {
		held.expires = knownExpiration(&f.owner.Status, held)
	}
	why := cause("")
	switch {
	case len(token) == 0:
		why = causeMissing
	case err != nil:
		why = causeMalformed
	case held.subject != subject(f.account.Namespace, f.account.Name):
		why = causeOther
	case held.accountUID != f.account.UID:
		why = causeReplaced
	case !f.now.Before(held.expires):
		why = causeExpired
	case f.verdict == rejected:
		why = causeRejected
	case f.secret.Annotations[RequestAnnotation] != f.request:
		why = causeRequest
	case !f.now.Before(held.due()):
		why = causeDue
	}
	switch {
	case why != "":
		return plan{mint: why, write: true, held: held}
	case f.verdict == notAsked:
		return plan{ask: true}
	}
	return plan{held: held, write: !equality.Semantic.DeepEqual(f.secret, desired(f.secret, f.owner, token, f.ca, f.request))}
}

// knownExpiration is when a token expires: what it says, or less if the
// managed cluster said so when it issued it, of which the status knows.
func knownExpiration(status *v1beta1.ManagedServiceAccountStatus, held claims) time.Time {
	if status.TokenSecretRef == nil || status.ExpirationTimestamp == nil || !status.TokenSecretRef.LastRefreshTimestamp.Time.Equal(held.issued) {
		return held.expires
	}
	if told := status.ExpirationTimestamp.Time; told.After(held.issued) && told.Before(held.expires) {
		return told
	}
	return held.expires
}

// checked is what the agent remembers of a Secret that was as it should be.
type checked struct {
	held    claims
	request string
	ca      uint64
	// version is the resourceVersion of the Secret.
	version string
	// reviewed is when the managed cluster last accepted the token, or issued
	// it; next is when the Secret is looked at again without a reason.
	reviewed, next time.Time
}

// reason is why a Secret has to be looked at; empty if it need not be.
type reason string

const (
	reasonFirst    reason = "first look"
	reasonNudge    reason = "the server saw a change"
	reasonAccount  reason = "another ServiceAccount"
	reasonRequest  reason = "another spec"
	reasonCA       reason = "another CA"
	reasonDue      reason = "due"
	reasonInterval reason = "interval"
)

// look decides whether a Secret has to be read. Now is by the agent's clock,
// managedNow by the managed cluster's.
func look(c *checked, accountUID types.UID, request string, ca uint64, status *v1beta1.ManagedServiceAccountStatus, now, managedNow time.Time) reason {
	switch {
	case c == nil:
		return reasonFirst
	case nudge(status) != "":
		return reasonNudge
	case c.held.accountUID != accountUID:
		return reasonAccount
	case c.request != request:
		return reasonRequest
	case !managedNow.Before(c.held.due()):
		return reasonDue
	case c.ca != ca:
		return reasonCA
	case !now.Before(c.next):
		return reasonInterval
	}
	return ""
}

// nudge is how the server tells that somebody changed or deleted the Secret:
// the reason of a condition. It is empty when the server is content.
func nudge(status *v1beta1.ManagedServiceAccountStatus) string {
	created := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionSecretCreated)
	if created == nil || created.Status == metav1.ConditionTrue {
		return ""
	}
	switch created.Reason {
	case v1beta1.ReasonSecretMissing, v1beta1.ReasonSecretChanged:
		return created.Reason
	}
	return ""
}

// routine reports whether a look is only to make sure: if it fails, nothing is
// known to be wrong with what the status says, so that the status stays.
func routine(why reason, status *v1beta1.ManagedServiceAccountStatus, managedNow time.Time) bool {
	switch why {
	case reasonFirst, reasonInterval, reasonCA:
	default:
		return false
	}
	return meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionTokenReported) && nudge(status) == "" &&
		status.ExpirationTimestamp != nil && managedNow.Before(status.ExpirationTimestamp.Time)
}
