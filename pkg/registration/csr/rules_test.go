package csr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

const (
	bootstrapper = "system:serviceaccount:open-cluster-management:cluster-bootstrap"
	creator      = "alice"
	agentName    = identityPrefix + "cluster1:agent1"
)

var (
	decidedAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	ownGroup  = identityPrefix + "cluster1"
	allGroup  = identityPrefix + sharedName
)

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// encode returns the signed request of a template.
func encode(t testing.TB, key crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// attributes returns a template with a subject that has exactly these attributes, in this order.
func attributes(t testing.TB, values ...pkix.AttributeTypeAndValue) *x509.CertificateRequest {
	t.Helper()
	var sequence pkix.RDNSequence
	for _, value := range values {
		sequence = append(sequence, pkix.RelativeDistinguishedNameSET{value})
	}
	raw, err := asn1.Marshal(sequence)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.CertificateRequest{RawSubject: raw}
}

func attribute(oid asn1.ObjectIdentifier, value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: oid, Value: value}
}

func named(cn string, groups ...string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn, Organization: groups}}
}

// requestOf returns a request like the requests of upstream OCM agents.
func requestOf(user string, content []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cluster1-abcde", UID: "r1", CreationTimestamp: metav1.NewTime(decidedAt.Add(-time.Minute)),
			Labels: map[string]string{clusterv1.ClusterNameLabel: "cluster1"},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: content, SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: user,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
}

// accepted returns the input for a request of a cluster that creator registered and that was
// accepted afterwards.
func accepted(request *certificatesv1.CertificateSigningRequest) input {
	return input{
		request: request,
		cluster: &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "c1"},
			Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			Status: clusterv1.ManagedClusterStatus{Acceptance: &clusterv1.Acceptance{
				Accepted: true, DecidedBy: "admin", DecidedAt: metav1.NewTime(decidedAt),
			}},
		},
		registration: &registerv1alpha1.ManagedClusterRegistration{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "g1"},
			Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
				ManagedClusterUID: "c1", Driver: registerv1alpha1.DriverCSR,
				RequestedBy: registerv1alpha1.Requester{Username: creator},
			},
		},
	}
}

// Invalid requests are never approved, even for users with all permissions.
func TestInvalidRequests(t *testing.T) {
	key := newKey(t)
	own, all := attribute(oidOrganization, ownGroup), attribute(oidOrganization, allGroup)
	cn := attribute(oidCommonName, agentName)
	sanOfOtherKind := pkix.Extension{Id: oidSubjectAlt, Value: []byte{0x30, 0x04, 0x88, 0x02, 0x2a, 0x03}} // a registered ID
	otherURL, err := url.Parse("spiffe://cluster2/agent")
	if err != nil {
		t.Fatal(err)
	}
	for name, template := range map[string]*x509.CertificateRequest{
		"no subject":                             {},
		"no common name":                         named("", ownGroup),
		"a third part":                           named(agentName+":x", ownGroup),
		"an admin after a third part":            named(agentName+":system:masters", ownGroup),
		"no agent":                               named(ownGroup, ownGroup),
		"an empty agent":                         named(ownGroup+":", ownGroup),
		"an empty cluster":                       named(identityPrefix+":agent1", identityPrefix),
		"an empty cluster and part":              named(identityPrefix+":cluster1:agent1", ownGroup),
		"no prefix":                              named("cluster1:agent1", ownGroup),
		"part of a prefix":                       named("system:open-cluster-management", ownGroup),
		"a user of Kubernetes":                   named("system:kube-controller-manager", ownGroup),
		"a prefix in capitals":                   named("System:open-cluster-management:cluster1:agent1", ownGroup),
		"a space before":                         named(" "+agentName, ownGroup),
		"a space after":                          named(agentName+" ", ownGroup),
		"a line break":                           named(agentName+"\n", ownGroup),
		"a cluster in capitals":                  named(identityPrefix+"Cluster1:agent1", identityPrefix+"Cluster1"),
		"a cluster with a dot":                   named(identityPrefix+"cluster1.x:agent1", identityPrefix+"cluster1.x"),
		"a cluster with a slash":                 named(identityPrefix+"cluster1/x:agent1", identityPrefix+"cluster1/x"),
		"a cluster with a Cyrillic letter":       named(identityPrefix+"сluster1:agent1", identityPrefix+"сluster1"),
		"a cluster with an invisible letter":     named(identityPrefix+"cluster1\u200b:agent1", ownGroup),
		"a fullwidth colon":                      named(identityPrefix+"cluster1\uff1aagent1", ownGroup),
		"an agent with a right-to-left override": named(agentName+"\u202e", ownGroup),
		"an agent with a null":                   named(agentName+"\x00", ownGroup),
		"a very long agent":                      named(agentName+strings.Repeat("x", maxAgentNameLength), ownGroup),
		"a cluster with a very long name":        named(identityPrefix+strings.Repeat("c", 64)+":agent1", identityPrefix+strings.Repeat("c", 64)),
		"the group of all as a cluster":          named(allGroup+":agent1", allGroup),
		"two common names":                       attributes(t, cn, cn, own),
		"another common name first":              attributes(t, attribute(oidCommonName, "admin"), cn, own),
		"another common name last":               attributes(t, cn, attribute(oidCommonName, "admin"), own),
		"two common names in one set":            twoInOneSet(t, cn, attribute(oidCommonName, "admin"), own),
		"no group":                               named(agentName),
		"only the group of all":                  named(agentName, allGroup),
		"the group of another cluster":           named(agentName, identityPrefix+"cluster2"),
		"also the group of another cluster":      named(agentName, ownGroup, identityPrefix+"cluster2"),
		"three groups":                           named(agentName, ownGroup, allGroup, identityPrefix+"cluster2"),
		"also system:masters":                    named(agentName, ownGroup, "system:masters"),
		"all and system:masters":                 named(agentName, allGroup, "system:masters"),
		"also an empty group":                    named(agentName, ownGroup, ""),
		"its own group twice":                    attributes(t, cn, own, own),
		"the group of all twice":                 attributes(t, cn, own, all, all),
		"both groups in one":                     named(agentName, ownGroup+","+allGroup),
		"its own group in capitals":              named(agentName, strings.ToUpper(ownGroup)),
		"the group of access entries":            named(agentName, "open-cluster-management:cluster1"),
		"an agent as group":                      named(agentName, agentName),
		"a unit":                                 {Subject: pkix.Name{CommonName: agentName, Organization: []string{ownGroup}, OrganizationalUnit: []string{"x"}}},
		"a country":                              {Subject: pkix.Name{CommonName: agentName, Organization: []string{ownGroup}, Country: []string{"NL"}}},
		"a serial number":                        {Subject: pkix.Name{CommonName: agentName, Organization: []string{ownGroup}, SerialNumber: "1"}},
		"a UID of Kubernetes":                    attributes(t, cn, own, attribute(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, "u")),
		"an unknown attribute":                   attributes(t, cn, own, attribute(asn1.ObjectIdentifier{1, 2, 3, 4}, "x")),
		"a group that is a number":               attributes(t, cn, own, attribute(oidOrganization, 7)),
		"a name that is a number":                attributes(t, attribute(oidCommonName, 7), own),
		"a DNS name":                             {Subject: named(agentName, ownGroup).Subject, DNSNames: []string{"kubernetes.default.svc"}},
		"an address":                             {Subject: named(agentName, ownGroup).Subject, IPAddresses: []net.IP{{127, 0, 0, 1}}},
		"a mail address":                         {Subject: named(agentName, ownGroup).Subject, EmailAddresses: []string{"a@example.com"}},
		"a URI":                                  {Subject: named(agentName, ownGroup).Subject, URIs: []*url.URL{otherURL}},
		"an alternative name of another kind":    {Subject: named(agentName, ownGroup).Subject, ExtraExtensions: []pkix.Extension{sanOfOtherKind}},
		"a cluster that differs from the label":  named(identityPrefix+"cluster2:agent1", identityPrefix+"cluster2"),
		"a cluster that begins like the label":   named(identityPrefix+"cluster10:agent1", identityPrefix+"cluster10"),
	} {
		t.Run(name, func(t *testing.T) {
			expectNeverApproved(t, requestOf("", encode(t, key, template)))
		})
	}

	good := encode(t, key, named(agentName, ownGroup))
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"another signer": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/kubelet-serving" },
		"the signer of kubelets": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		},
		"a foreign signer": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example.com/signer" },
		"no signer":        func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "" },
		"server auth": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
		},
		"any usage": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageAny)
		},
		"signing": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageCertSign)
		},
		"no usages":      func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil },
		"no client auth": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = r.Spec.Usages[:2] },
		"another label": func(r *certificatesv1.CertificateSigningRequest) {
			r.Labels = map[string]string{clusterv1.ClusterNameLabel: "cluster2"}
		},
		"an empty label": func(r *certificatesv1.CertificateSigningRequest) {
			r.Labels = map[string]string{clusterv1.ClusterNameLabel: ""}
		},
		"an empty request": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = nil },
		"not PEM":          func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("request") },
		"invalid DER": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = pemOf("CERTIFICATE REQUEST", []byte("x"))
		},
		"two requests": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = slices.Concat(good, good) },
		"a request that is too large": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = slices.Concat(make([]byte, maxRequestSize), good)
		},
		"another kind of block": func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(good)
			r.Spec.Request = pemOf("NEW CERTIFICATE REQUEST", block.Bytes)
		},
		"an invalid signature": func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(good)
			block.Bytes[len(block.Bytes)-1] ^= 1 // the signature is last
			r.Spec.Request = pem.EncodeToMemory(block)
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := requestOf("", good)
			change(request)
			expectNeverApproved(t, request)
		})
	}
}

func pemOf(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}

func twoInOneSet(t *testing.T, first, second, alone pkix.AttributeTypeAndValue) *x509.CertificateRequest {
	t.Helper()
	raw, err := asn1.Marshal(pkix.RDNSequence{{first, second}, {alone}})
	if err != nil {
		t.Fatal(err)
	}
	return &x509.CertificateRequest{RawSubject: raw}
}

// mostAllowed returns the input in which the user has all permissions for the cluster.
func mostAllowed(request *certificatesv1.CertificateSigningRequest, user string, cluster string) input {
	request = request.DeepCopy()
	request.Spec.Username, request.Spec.Groups = user, []string{BootstrapGroup}
	in := accepted(request)
	in.cluster.Name, in.registration.Name = cluster, cluster
	in.registration.Spec.RequestedBy.Username = user
	in.autoApproved, in.mayRenew = sets.New(user), new(true)
	return in
}

func expectNeverApproved(t *testing.T, request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	for _, user := range []string{creator, bootstrapper, agentName, identityPrefix + "cluster2:agent1", "system:admin"} {
		for _, cluster := range []string{"cluster1", "cluster2"} {
			if d := judge(mostAllowed(request, user, cluster)); d.verdict != verdictIgnore || d.message == "" {
				t.Errorf("judge() for user %s and cluster %s = %d, %s: %s, want verdict %d with a message", user, cluster, d.verdict, d.reason, d.message, verdictIgnore)
			}
		}
	}
}

func TestRequestsOfPublicAgents(t *testing.T) {
	key := newKey(t)
	for name, template := range map[string]*x509.CertificateRequest{
		"own group":             named(agentName, ownGroup),
		"both groups":           named(agentName, ownGroup, allGroup),
		"both in reverse order": attributes(t, attribute(oidOrganization, allGroup), attribute(oidCommonName, agentName), attribute(oidOrganization, ownGroup)),
		"name before groups":    attributes(t, attribute(oidCommonName, agentName), attribute(oidOrganization, ownGroup)),
		"groups in two parts":   attributes(t, attribute(oidOrganization, ownGroup), attribute(oidOrganization, allGroup), attribute(oidCommonName, agentName)),
	} {
		t.Run(name, func(t *testing.T) {
			request := requestOf(creator, encode(t, key, template))
			if d := judge(accepted(request)); d.verdict != verdictApprove || d.reason != reasonAccepted || d.agent != (identity{"cluster1", "agent1"}) {
				t.Errorf("judge() = %d, %s: %s for %v, want verdict %d, %s for cluster1:agent1", d.verdict, d.reason, d.message, d.agent, verdictApprove, reasonAccepted)
			}
			request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
			delete(request.Labels, clusterv1.ClusterNameLabel)
			if d := judge(accepted(request)); d.verdict != verdictApprove {
				t.Errorf("judge() without optional fields = %d, %s: %s, want verdict %d", d.verdict, d.reason, d.message, verdictApprove)
			}
		})
	}
}

func TestRules(t *testing.T) {
	content := encode(t, newKey(t), named(agentName, ownGroup))
	late := func(in *input) { in.request.CreationTimestamp = metav1.NewTime(decidedAt.Add(time.Second)) }
	known := func(in *input) {
		in.registration.Status.CSR = &registerv1alpha1.CSRStatus{Agents: []string{"agent0"}}
	}
	denied := func(in *input) {
		in.cluster.Spec.HubAcceptsClient = false
		in.cluster.Status.Acceptance.Accepted = false
	}
	undecided := func(in *input) {
		in.cluster.Spec.HubAcceptsClient = false
		in.cluster.Status.Acceptance = nil
	}
	deleting := func(in *input) { in.cluster.DeletionTimestamp = new(metav1.NewTime(decidedAt)) }
	gone := func(in *input) { in.cluster = nil }
	unknown := func(in *input) { in.cluster, in.registration = nil, nil }
	unregistered := func(in *input) { in.registration = nil }
	ofAnother := func(in *input) { in.registration.Spec.ManagedClusterUID = "c0" }
	irsa := func(in *input) { in.registration.Spec.Driver = registerv1alpha1.DriverAWSIRSA }
	only := func(users ...string) func(*input) {
		return func(in *input) { in.cluster.Status.Acceptance.Requesters = users }
	}
	early := func(in *input) {
		in.cluster.CreationTimestamp = metav1.NewTime(in.request.CreationTimestamp.Add(ahead + time.Second))
	}
	together := func(in *input) {
		in.cluster.CreationTimestamp = metav1.NewTime(in.request.CreationTimestamp.Add(time.Second))
	}
	auto := func(users ...string) func(*input) { return func(in *input) { in.autoApproved = sets.New(users...) } }
	may := func(in *input) { in.mayRenew = new(true) }
	mayNot := func(in *input) { in.mayRenew = new(false) }
	group := func(in *input) { in.request.Spec.Groups = []string{"system:authenticated", BootstrapGroup} }
	old := func(in *input) { in.cluster.Status.Acceptance = nil } // accepted before decisions were recorded

	type changes []func(*input)
	for name, test := range map[string]struct {
		user    string
		changes changes
		verdict verdict
		reason  string
	}{
		"accepted after the request":                      {creator, nil, verdictApprove, reasonAccepted},
		"in the second of the decision":                   {creator, changes{func(in *input) { in.request.CreationTimestamp = metav1.NewTime(decidedAt) }}, verdictApprove, reasonAccepted},
		"of a token":                                      {"system:bootstrap:abcdef", changes{group}, verdictApprove, reasonAccepted},
		"of the bootstrap account":                        {bootstrapper, nil, verdictApprove, reasonAccepted},
		"of the other bootstrap account":                  {"system:serviceaccount:open-cluster-management:agent-registration-bootstrap", nil, verdictApprove, reasonAccepted},
		"of an account of that name in another namespace": {"system:serviceaccount:cluster1:cluster-bootstrap", nil, verdictWait, reasonRequester},
		"of any user":                                     {"mallory", nil, verdictWait, reasonRequester},
		"of an unknown creator":                           {"", changes{func(in *input) { in.registration.Spec.RequestedBy.Username = "" }}, verdictWait, reasonRequester},
		"of a named requester":                            {"bob", changes{only("bob")}, verdictApprove, reasonAccepted},
		"of a requester who is not named":                 {bootstrapper, changes{only("bob")}, verdictWait, reasonRequester},
		"of the creator who is not named":                 {creator, changes{only("bob")}, verdictWait, reasonRequester},
		"of an empty user, and an empty user is named":    {"", changes{only("")}, verdictWait, reasonRequester},
		"second agent before the decision":                {creator, changes{known}, verdictApprove, reasonAccepted},
		"second agent after the decision":                 {creator, changes{known, late}, verdictWait, reasonAfterDecision},
		"first agent after the decision":                  {creator, changes{late}, verdictApprove, reasonFirstAgent},
		"first agent of another requester":                {bootstrapper, changes{late}, verdictWait, reasonAfterDecision},
		"first agent of a named requester":                {"bob", changes{only("bob"), late}, verdictWait, reasonAfterDecision},
		"first agent without a decision":                  {creator, changes{old}, verdictApprove, reasonFirstAgent},
		"any agent without a decision":                    {bootstrapper, changes{old}, verdictWait, reasonRequester},
		"automatic":                                       {creator, changes{auto(creator), late, known}, verdictApprove, reasonAutoApproved},
		"automatic, of a cluster of another user":         {"bob", changes{auto("bob"), late, known}, verdictWait, reasonRequester},
		"automatic, but others are named":                 {creator, changes{auto(creator), only("carol"), late, known}, verdictWait, reasonRequester},
		"earlier than the cluster":                        {creator, changes{early}, verdictWait, reasonEarlier},
		"earlier than the cluster, and named":             {creator, changes{early, only(creator)}, verdictApprove, reasonAccepted},
		"at the same time as the cluster":                 {creator, changes{together}, verdictApprove, reasonAccepted},
		"automatic, of another user":                      {"bob", changes{auto("carol")}, verdictWait, reasonRequester},
		"automatic, of an empty user":                     {"", changes{auto("")}, verdictWait, reasonRequester},
		"automatic, not accepted":                         {"bob", changes{auto("bob"), undecided}, verdictWait, reasonUndecided},
		"automatic, denied":                               {"bob", changes{auto("bob"), denied}, verdictWait, reasonDenied},
		"undecided":                                       {creator, changes{undecided}, verdictWait, reasonUndecided},
		"denied":                                          {creator, changes{denied}, verdictDeny, reasonDenied},
		"denied, of its agent":                            {agentName, changes{denied, may}, verdictDeny, reasonDenied},
		"denied, of any user":                             {"mallory", changes{denied}, verdictWait, reasonDenied},
		"being deleted":                                   {creator, changes{deleting}, verdictDeny, reasonDeleted},
		"being deleted, of its agent":                     {agentName, changes{deleting, may}, verdictDeny, reasonDeleted},
		"being deleted, of any user":                      {bootstrapper, changes{deleting}, verdictWait, reasonDeleted},
		"deleted":                                         {creator, changes{gone}, verdictDeny, reasonDeleted},
		"deleted, of its agent":                           {agentName, changes{gone, may}, verdictDeny, reasonDeleted},
		"unknown":                                         {creator, changes{unknown}, verdictWait, reasonUnknown},
		"unknown, of its agent":                           {agentName, changes{unknown, may}, verdictWait, reasonUnknown},
		"not registered yet":                              {creator, changes{unregistered}, verdictWait, reasonNotRegistered},
		"not registered yet, of its agent":                {agentName, changes{unregistered, may}, verdictWait, reasonNotRegistered},
		"registered for a previous cluster":               {creator, changes{ofAnother}, verdictWait, reasonNotRegistered},
		"renewal":                                         {agentName, changes{may}, verdictApprove, reasonRenewed},
		"renewal long after the decision":                 {agentName, changes{may, known, late}, verdictApprove, reasonRenewed},
		"renewal that is not reviewed":                    {agentName, nil, verdictReview, reasonRenewal},
		"renewal that is not allowed":                     {agentName, changes{mayNot}, verdictWait, reasonMayNotRenew},
		"renewal is not a first request":                  {agentName, changes{mayNot, group, only(agentName), auto(agentName)}, verdictWait, reasonMayNotRenew},
		"renewal of an undecided cluster":                 {agentName, changes{may, undecided}, verdictWait, reasonUndecided},
		"by another agent":                                {identityPrefix + "cluster1:agent2", changes{may, group}, verdictIgnore, reasonOtherAgent},
		"by an agent of another cluster":                  {identityPrefix + "cluster2:agent1", changes{may, group}, verdictIgnore, reasonOtherAgent},
		"by an agent of another cluster, named":           {identityPrefix + "cluster2:agent1", changes{only(identityPrefix + "cluster2:agent1"), auto(identityPrefix + "cluster2:agent1")}, verdictIgnore, reasonOtherAgent},
		"of a cluster with another driver":                {creator, changes{irsa}, verdictIgnore, reasonOtherDriver},
		"of an agent with another driver":                 {agentName, changes{irsa, may}, verdictIgnore, reasonOtherDriver},
		"of a denied cluster with another driver":         {agentName, changes{irsa, denied}, verdictIgnore, reasonOtherDriver},
	} {
		t.Run(name, func(t *testing.T) {
			in := accepted(requestOf(test.user, content))
			for _, change := range test.changes {
				change(&in)
			}
			d := judge(in)
			if d.verdict != test.verdict || d.reason != test.reason || d.message == "" {
				t.Errorf("judge() = %d, %s: %s, want verdict %d, %s with a message", d.verdict, d.reason, d.message, test.verdict, test.reason)
			}
		})
	}
}

func TestDriver(t *testing.T) {
	registration := accepted(requestOf(creator, nil)).registration
	if refused := (Driver{}).Refuses(registration); refused != "" {
		t.Errorf("Refuses() = %q, want an empty string", refused)
	}
	registration.Spec.Driver = registerv1alpha1.DriverAWSIRSA
	if refused := (Driver{}).Refuses(registration); refused == "" {
		t.Error("Refuses() of a cluster with another driver is empty, want a reason")
	}
}
