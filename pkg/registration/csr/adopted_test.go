package csr

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// TestAdopted checks that only the agent of an adopted cluster gets a certificate, as long as nobody has decided about
// the cluster on this hub.
func TestAdopted(t *testing.T) {
	key, other := newRehomingKey(t), newRehomingKey(t)
	keyHash, err := rehoming.KeyHash(key)
	if err != nil {
		t.Fatal(err)
	}
	content := encode(t, newKey(t), named(agentName, ownGroup))
	foreign := encode(t, newKey(t), named(agentName, ownGroup))
	proved := func(key, content []byte) func(*input) {
		return func(in *input) {
			proof, err := rehoming.Prove(key, content)
			if err != nil {
				t.Fatal(err)
			}
			in.request.Annotations = map[string]string{rehoming.ProofAnnotation: proof}
		}
	}
	adoptedAt := decidedAt.Add(time.Hour)
	noKey := func(in *input) { delete(in.registration.Annotations, rehoming.KeyAnnotation) }
	unrecorded := func(in *input) { delete(in.registration.Annotations, rehoming.DecisionAnnotation) }
	former := func(value string) func(*input) {
		return func(in *input) { in.registration.Annotations[rehoming.DecisionAnnotation] = value }
	}
	// The clock of the former hub was ahead, or that of the adoption behind.
	early := func(in *input) {
		in.registration.Annotations[rehoming.AdoptedAnnotation] = decidedAt.Add(-time.Hour).Format(time.RFC3339)
	}
	behind := func(in *input) {
		in.request.CreationTimestamp = metav1.NewTime(decidedAt.Add(-2 * time.Hour))
		in.cluster.Status.Acceptance.DecidedAt = metav1.NewTime(decidedAt.Add(-time.Hour))
	}
	undecided := func(in *input) { in.cluster.Status.Acceptance = nil }
	again := func(in *input) { in.cluster.Status.Acceptance.DecidedAt = metav1.NewTime(adoptedAt.Add(time.Hour)) }
	auto := func(in *input) { in.autoApproved = sets.New(in.request.Spec.Username) }
	denied := func(in *input) {
		in.cluster.Spec.HubAcceptsClient, in.cluster.Status.Acceptance.Accepted = false, false
	}
	known := func(in *input) { in.registration.Status.CSR = &registerv1alpha1.CSRStatus{Agents: []string{"agent0"}} }
	for name, test := range map[string]struct {
		user    string
		changes []func(*input)
		verdict verdict
		reason  string
	}{
		"with its proof":                      {bootstrapper, []func(*input){proved(key, content)}, verdictApprove, reasonProved},
		"again with its proof":                {bootstrapper, []func(*input){proved(key, content), known}, verdictApprove, reasonProved},
		"without a proof":                     {bootstrapper, nil, verdictWait, reasonNotProved},
		"without a proof, by the creator":     {creator, nil, verdictWait, reasonNotProved},
		"without a proof, approved by a rule": {creator, []func(*input){auto}, verdictWait, reasonNotProved},
		"with a proof by another key":         {creator, []func(*input){proved(other, content), auto}, verdictWait, reasonNotProved},
		"with a copied proof":                 {bootstrapper, []func(*input){proved(key, foreign)}, verdictWait, reasonNotProved},
		"of a cluster without a known key":    {bootstrapper, []func(*input){proved(key, content), noKey}, verdictWait, reasonNotProved},
		"adopted without a recorded decision": {bootstrapper, []func(*input){again, unrecorded}, verdictWait, reasonNotProved},
		"accepted again":                      {bootstrapper, []func(*input){again}, verdictApprove, reasonAccepted},
		"adopted before its decision":         {creator, []func(*input){early}, verdictWait, reasonNotProved},
		"adopted undecided":                   {creator, []func(*input){undecided, early, former("")}, verdictWait, reasonNotProved},
		"adopted with an unknown decision":    {creator, []func(*input){again, former("today")}, verdictWait, reasonNotProved},
		"accepted again, by another clock":    {bootstrapper, []func(*input){behind}, verdictApprove, reasonAccepted},
		"accepted first":                      {bootstrapper, []func(*input){behind, former("")}, verdictApprove, reasonAccepted},
		"denied":                              {creator, []func(*input){proved(key, content), denied}, verdictDeny, reasonDenied},
		"by an agent of another cluster":      {identityPrefix + "cluster2:a", []func(*input){proved(key, content)}, verdictIgnore, reasonOtherAgent},
	} {
		t.Run(name, func(t *testing.T) {
			in := accepted(requestOf(test.user, content))
			in.registration.Annotations = map[string]string{
				rehoming.AdoptedAnnotation: adoptedAt.Format(time.RFC3339), rehoming.KeyAnnotation: keyHash,
				rehoming.DecisionAnnotation: decidedAt.Format(time.RFC3339),
			}
			for _, change := range test.changes {
				change(&in)
			}
			if d := judge(in); d.verdict != test.verdict || d.reason != test.reason {
				t.Errorf("judge() = %d, %s: %s, want verdict %d, %s", d.verdict, d.reason, d.message, test.verdict, test.reason)
			} else if d.reason == reasonNotProved && !strings.Contains(d.message, "accept the cluster again") {
				t.Errorf("message = %s, want the remedy", d.message)
			}
		})
	}
}

func newRehomingKey(t *testing.T) []byte {
	t.Helper()
	key, err := rehoming.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
