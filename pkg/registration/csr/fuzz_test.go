package csr

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// FuzzJudge judges random requests of random users. The certificate of an approved
// request must name an agent of the cluster, and only groups of the cluster.
func FuzzJudge(f *testing.F) {
	f.Add(agentName, ownGroup, "", "", "", "cluster1", creator, []byte(nil))
	f.Add(agentName, ownGroup, allGroup, "", "", "cluster1", bootstrapper, []byte(nil))
	f.Add(agentName, ownGroup, allGroup, "system:masters", "", "cluster1", creator, []byte(nil))
	f.Add(agentName+":x", ownGroup, "", "", "", "cluster1", agentName, []byte(nil))
	f.Add(allGroup+":agent1", allGroup, "", "", "", sharedName, creator, []byte(nil))
	f.Add(identityPrefix+":cluster1:agent1", ownGroup, "", "", "", "cluster1", creator, []byte(nil))
	f.Add(identityPrefix+"cluster2:agent1", ownGroup, "", "", "", "cluster2", creator, []byte(nil))
	f.Add(agentName, ownGroup, "", "", "kubernetes", "cluster1", creator, []byte(nil))
	f.Add(agentName, "", "", "", "", "cluster1", creator, []byte(nil))
	for _, values := range [][]pkix.AttributeTypeAndValue{
		{attribute(oidCommonName, agentName), attribute(oidOrganization, ownGroup)},
		{attribute(oidCommonName, agentName), attribute(oidCommonName, "admin"), attribute(oidOrganization, ownGroup)},
		{attribute(oidCommonName, agentName), attribute(oidOrganization, ownGroup), attribute(asn1.ObjectIdentifier{1, 2, 3}, "x")},
	} {
		f.Add("", "", "", "", "", "cluster1", creator, attributes(f, values...).RawSubject)
	}
	key := newKey(f)

	f.Fuzz(func(t *testing.T, cn, o1, o2, o3, san, cluster, user string, rawSubject []byte) {
		template := &x509.CertificateRequest{RawSubject: rawSubject}
		if len(rawSubject) == 0 {
			organizations := slices.DeleteFunc([]string{o1, o2, o3}, func(o string) bool { return o == "" })
			template = &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn, Organization: organizations}}
		}
		if san != "" {
			template.DNSNames = []string{san}
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		if err != nil {
			return // such a request cannot be created
		}
		request := requestOf(user, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		request.Labels[clusterv1.ClusterNameLabel] = cluster
		d := judge(mostAllowed(request, user, cluster))
		if d.verdict != verdictApprove {
			return
		}
		content, err := x509.ParseCertificateRequest(der)
		if err != nil {
			t.Fatalf("parsing an approved request: %v", err)
		}
		// This is how kube-apiserver reads the user from a certificate.
		name, groups := content.Subject.CommonName, content.Subject.Organization
		agent, ok := strings.CutPrefix(name, identityPrefix+cluster+":")
		if !ok || agent == "" || strings.Contains(agent, ":") || strings.Contains(cluster, ":") {
			t.Errorf("approved name = %q, want an agent of cluster %q", name, cluster)
		}
		own := identityPrefix + cluster
		if !slices.Contains(groups, own) || own == allGroup || slices.ContainsFunc(groups, func(g string) bool { return g != own && g != allGroup }) {
			t.Errorf("approved groups = %q, want only groups of cluster %q", groups, cluster)
		}
		if len(content.Subject.Names) != 1+len(groups) || len(content.DNSNames)+len(content.EmailAddresses)+len(content.IPAddresses)+len(content.URIs) > 0 {
			t.Errorf("approved subject = %v, want only a name and groups", content.Subject.Names)
		}
		if strings.HasPrefix(user, identityPrefix) && user != name {
			t.Errorf("approved name for agent %q = %q, want the name of the agent", user, name)
		}
	})
}
