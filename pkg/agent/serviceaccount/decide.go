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

// All functions in this file are pure.

// accountVerdict describes the owner and the state of a ServiceAccount.
type accountVerdict int

const (
	// usable means that the ServiceAccount belongs to the ManagedServiceAccount.
	usable accountVerdict = iota
	// unclaimed means that it belongs to the agent, but lacks its label or annotation.
	unclaimed
	// outlived means that it belongs to a deleted ManagedServiceAccount with the same name.
	outlived
	// terminating means that it belongs to the agent and is being deleted.
	terminating
	// foreign means that it belongs to another owner.
	foreign
)

// judgeAccount returns the verdict on a ServiceAccount. recorded is its UID in the status. reported means that the
// status contains a token: then a ManagedServiceAccount with another UID is the same one on another hub or in another
// storage, because a new one has no status before its ServiceAccount is usable.
func judgeAccount(account *corev1.ServiceAccount, identity string, owner, recorded types.UID, reported bool) accountVerdict {
	labelled := account.Labels[v1beta1.ManagedServiceAccountLabel] == identity
	madeFor := types.UID(account.Annotations[OwnerUIDAnnotation])
	switch {
	case !labelled && (recorded == "" || recorded != account.UID):
		return foreign
	case account.DeletionTimestamp != nil:
		return terminating
	case !labelled || madeFor == "":
		return unclaimed
	case madeFor != owner && (recorded == account.UID || recorded == "" && reported):
		return unclaimed
	case madeFor != owner:
		return outlived
	}
	return usable
}

// ownership describes the owner of the Secret with the name of an account.
type ownership int

const (
	// unread means that the Secret was not read, because it cannot exist yet.
	unread ownership = iota
	// absent means that the Secret does not exist.
	absent
	// ours means that the Secret belongs to the account.
	ours
	// former means that the Secret belongs to a deleted ManagedServiceAccount with the same name,
	// and is about to be garbage-collected.
	former
	// taken means that the Secret belongs to another owner.
	taken
	// hidden means that the Secret exists, but the agent is not allowed to read it: it belongs to
	// another owner, or the hub has not granted access to it yet.
	hidden
)

// ownershipOf returns the ownership of a Secret. known is true if the agent has stored a token in a
// Secret with this name before. In that case, either the label or the owner reference is
// sufficient, and the other one is restored.
func ownershipOf(secret *corev1.Secret, owner *v1beta1.ManagedServiceAccount, known bool, wantedSubject string) ownership {
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

// desired returns the Secret that contains a token. It keeps metadata of other writers, but not
// their data.
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

type verdict int

const (
	notAsked verdict = iota
	accepted
	rejected
)

type facts struct {
	// now is the time of the managed cluster.
	now       time.Time
	account   *corev1.ServiceAccount
	owner     *v1beta1.ManagedServiceAccount
	request   string
	ca        []byte
	ownership ownership
	// secret is the Secret if its ownership is ours.
	secret  *corev1.Secret
	verdict verdict
}

type plan struct {
	// ask is true if the token must be reviewed before another decision.
	ask bool
	// mint is true if a new token must be requested. dead is true if the current one is missing or invalid.
	mint, dead bool
	// write is true if the Secret must be written.
	write bool
	// held are the claims of the token in the Secret.
	held claims
}

// judge returns the plan for a Secret whose ownership is ours, absent or unread.
func judge(f facts) plan {
	if f.ownership != ours {
		return plan{mint: true, dead: true, write: true}
	}
	token := f.secret.Data[v1beta1.SecretTokenKey]
	held, err := parseToken(string(token))
	if err == nil {
		held.expires = knownExpiration(&f.owner.Status, held)
	}
	// The ServiceAccount of the token may have been deleted and created again.
	dead := err != nil || held.subject != subject(f.account.Namespace, f.account.Name) || held.accountUID != f.account.UID ||
		!f.now.Before(held.expires) || f.verdict == rejected
	switch {
	case dead || f.secret.Annotations[RequestAnnotation] != f.request || !f.now.Before(held.due()):
		return plan{mint: true, dead: dead, write: true, held: held}
	case f.verdict == notAsked:
		return plan{ask: true}
	}
	return plan{held: held, write: !equality.Semantic.DeepEqual(f.secret, desired(f.secret, f.owner, token, f.ca, f.request))}
}

// knownExpiration returns the expiry of a token: the time in its claim, or an earlier time in the
// status that the managed cluster returned with the token.
func knownExpiration(status *v1beta1.ManagedServiceAccountStatus, held claims) time.Time {
	if status.TokenSecretRef == nil || status.ExpirationTimestamp == nil || !status.TokenSecretRef.LastRefreshTimestamp.Time.Equal(held.issued) {
		return held.expires
	}
	if reported := status.ExpirationTimestamp.Time; reported.After(held.issued) && reported.Before(held.expires) {
		return reported
	}
	return held.expires
}

// checked is the state that the agent stores about a Secret that was up to date.
type checked struct {
	held    claims
	request string
	ca      string
	// version is the resourceVersion of the Secret.
	version string
	// reviewed is the time at which the managed cluster last accepted or issued the token. next is
	// the time at which the Secret is read again without a trigger.
	reviewed, next time.Time
}

// look reports whether to read a Secret, and whether that is routine: it was not read for some time, or only the CA has
// changed. now is the time of the agent, and managedNow is the time of the managed cluster.
func look(c *checked, accountUID types.UID, request, ca string, status *v1beta1.ManagedServiceAccountStatus, now, managedNow time.Time) (due, routine bool) {
	switch {
	case c == nil:
		return true, true
	case nudge(status) != "" || c.held.accountUID != accountUID || c.request != request || !managedNow.Before(c.held.due()):
		return true, false
	}
	due = c.ca != ca || !now.Before(c.next)
	return due, due
}

// nudge returns the reason of the condition by which the server reports a change or the deletion of
// the Secret, or an empty string.
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

// quiet reports whether the status stays the same if a routine check fails, because no problem is known.
func quiet(status *v1beta1.ManagedServiceAccountStatus, managedNow time.Time) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionTokenReported) && nudge(status) == "" &&
		status.ExpirationTimestamp != nil && managedNow.Before(status.ExpirationTimestamp.Time)
}
