package csr

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/util/cert"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// identityPrefix is the prefix of the names and groups of agents in certificates.
	identityPrefix = "system:open-cluster-management:"
	// sharedName cannot name a cluster, since its group contains the agents of all clusters.
	sharedName = "managed-clusters"

	// maxRequestSize exceeds the size of a request with the largest usual key, in bytes.
	maxRequestSize = 16 << 10
	// maxRSABits bounds the CPU time of verifying a signature.
	maxRSABits = 8192
	// maxAgentNameLength is in bytes.
	maxAgentNameLength = 253
)

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidSubjectAlt   = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// identity is an agent of a cluster in a certificate.
type identity struct {
	cluster, agent string
}

func (i identity) username() string { return identityPrefix + i.cluster + ":" + i.agent }

// parse returns the agent that a request names as the subject of the certificate. It returns an error if the request is
// not for exactly such a certificate.
func parse(request *certificatesv1.CertificateSigningRequest) (identity, error) {
	if signer := request.Spec.SignerName; signer != certificatesv1.KubeAPIServerClientSignerName {
		return identity{}, fmt.Errorf("the signer is %q, not %q", signer, certificatesv1.KubeAPIServerClientSignerName)
	}
	if err := checkUsages(request.Spec.Usages); err != nil {
		return identity{}, err
	}
	content, err := decode(request.Spec.Request)
	if err != nil {
		return identity{}, err
	}
	agent, err := subject(content)
	if err != nil {
		return identity{}, err
	}
	if key, ok := content.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return identity{}, fmt.Errorf("the RSA key has %d bits, more than %d", key.N.BitLen(), maxRSABits)
	}
	if label, labelled := request.Labels[clusterv1.ClusterNameLabel]; labelled && label != agent.cluster {
		return identity{}, fmt.Errorf("the label %s is %q, but the subject is an agent of %q", clusterv1.ClusterNameLabel, label, agent.cluster)
	}
	if err := content.CheckSignature(); err != nil {
		return identity{}, fmt.Errorf("the signature of the request is invalid: %w", err)
	}
	return agent, nil
}

func checkUsages(usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("the usage %q is not allowed for agents", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("the usage %q is missing", certificatesv1.UsageClientAuth)
	}
	return nil
}

func decode(request []byte) (*x509.CertificateRequest, error) {
	if len(request) > maxRequestSize {
		return nil, fmt.Errorf("the request is longer than %d bytes", maxRequestSize)
	}
	block, rest := pem.Decode(request)
	if block == nil || block.Type != cert.CertificateRequestBlockType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the request is not a single PEM-encoded certificate request")
	}
	content, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be parsed: %w", err)
	}
	// The extension may contain names that Go does not parse.
	for _, extension := range content.Extensions {
		if extension.Id.Equal(oidSubjectAlt) {
			return nil, errors.New("the request has subject alternative names")
		}
	}
	return content, nil
}

// subject returns the agent of a subject that contains only its name and groups. The hub copies the whole subject into
// the certificate, so attributes for which Go has no field are checked too.
func subject(content *x509.CertificateRequest) (identity, error) {
	var names, groups []string
	for _, attribute := range content.Subject.Names {
		value, ok := attribute.Value.(string)
		switch {
		case !ok:
			return identity{}, fmt.Errorf("the attribute %s of the subject is not a string", attribute.Type)
		case attribute.Type.Equal(oidCommonName):
			names = append(names, value)
		case attribute.Type.Equal(oidOrganization):
			groups = append(groups, value)
		default:
			return identity{}, fmt.Errorf("the subject contains the attribute %s; only a common name and organizations are allowed", attribute.Type)
		}
	}
	if len(names) != 1 {
		return identity{}, fmt.Errorf("the subject has %d common names", len(names))
	}
	agent, err := parseUsername(names[0])
	if err != nil {
		return identity{}, err
	}
	// The other groups do not occur in certificates.
	own := clusterv1.AgentGroups(agent.cluster)[0]
	slices.Sort(groups)
	if slices.Equal(groups, []string{own}) {
		return agent, nil
	}
	both := []string{own, identityPrefix + sharedName}
	slices.Sort(both)
	if slices.Equal(groups, both) {
		return agent, nil
	}
	return identity{}, fmt.Errorf("the organizations %q do not belong to an agent of cluster %q", groups, agent.cluster)
}

func parseUsername(name string) (identity, error) {
	rest, ok := strings.CutPrefix(name, identityPrefix)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 2 {
		return identity{}, fmt.Errorf("the common name %q is not %s<cluster>:<agent>", name, identityPrefix)
	}
	agent := identity{cluster: parts[0], agent: parts[1]}
	if problems := apivalidation.ValidateNamespaceName(agent.cluster, false); len(problems) > 0 {
		return identity{}, fmt.Errorf("the common name %q contains an invalid cluster name: %s", name, strings.Join(problems, ", "))
	}
	if agent.cluster == sharedName {
		return identity{}, fmt.Errorf("the common name %q contains the reserved cluster name of the group of all clusters", name)
	}
	// Users compare these names, so two names must not look alike.
	unreadable := func(r rune) bool { return r <= ' ' || r > '~' }
	if agent.agent == "" || len(agent.agent) > maxAgentNameLength || strings.ContainsFunc(agent.agent, unreadable) {
		return identity{}, fmt.Errorf("the common name %q contains an invalid agent name: must be 1 to %d printable ASCII characters", name, maxAgentNameLength)
	}
	return agent, nil
}
