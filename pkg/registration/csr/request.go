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
	// identityPrefix begins the names of agents, and of their groups in certificates.
	identityPrefix = "system:open-cluster-management:"
	// sharedName is no cluster's: the group of that name is the one of all clusters.
	sharedName = "managed-clusters"

	// maxRequestSize is more than a request with the largest usual key takes, in bytes.
	maxRequestSize = 16 << 10
	// maxRSABits bounds what it costs to verify the signature of a request.
	maxRSABits = 8192
	// maxAgentNameLength is in bytes.
	maxAgentNameLength = 253
)

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidSubjectAlt   = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// identity is an agent of a cluster, as certificates name it.
type identity struct {
	cluster, agent string
}

func (i identity) username() string { return identityPrefix + i.cluster + ":" + i.agent }

// parse returns the agent that a request asks a certificate for. Its error says what
// keeps the request from being one for a certificate of an agent and of nothing else.
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
		return identity{}, fmt.Errorf("who asks does not have the key: %w", err)
	}
	return agent, nil
}

func checkUsages(usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("the usage %q is none of an agent", usage)
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
		return nil, errors.New("the request is not one certificate request in PEM")
	}
	content, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be read: %w", err)
	}
	// Names of kinds that Go does not parse count too.
	for _, extension := range content.Extensions {
		if extension.Id.Equal(oidSubjectAlt) {
			return nil, errors.New("the request has subject alternative names")
		}
	}
	return content, nil
}

// subject reads the agent from a subject that has its name and groups and nothing
// else. The hub copies the subject into the certificate as it is, so every attribute
// counts, not only those that Go has a field for.
func subject(content *x509.CertificateRequest) (identity, error) {
	var names, groups []string
	for _, attribute := range content.Subject.Names {
		value, ok := attribute.Value.(string)
		switch {
		case !ok:
			return identity{}, fmt.Errorf("the attribute %s of the subject is no string", attribute.Type)
		case attribute.Type.Equal(oidCommonName):
			names = append(names, value)
		case attribute.Type.Equal(oidOrganization):
			groups = append(groups, value)
		default:
			return identity{}, fmt.Errorf("the subject has the attribute %s beside its common name and organizations", attribute.Type)
		}
	}
	if len(names) != 1 {
		return identity{}, fmt.Errorf("the subject has %d common names", len(names))
	}
	agent, err := parseUsername(names[0])
	if err != nil {
		return identity{}, err
	}
	// The others are not for certificates.
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
	return identity{}, fmt.Errorf("the organizations %q are not those of an agent of %q", groups, agent.cluster)
}

func parseUsername(name string) (identity, error) {
	rest, ok := strings.CutPrefix(name, identityPrefix)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 2 {
		return identity{}, fmt.Errorf("the common name %q is not %s<cluster>:<agent>", name, identityPrefix)
	}
	agent := identity{cluster: parts[0], agent: parts[1]}
	if problems := apivalidation.ValidateNamespaceName(agent.cluster, false); len(problems) > 0 {
		return identity{}, fmt.Errorf("the common name %q has no name of a cluster: %s", name, strings.Join(problems, ", "))
	}
	if agent.cluster == sharedName {
		return identity{}, fmt.Errorf("the common name %q is of a cluster named as the group of all clusters is", name)
	}
	// People read these names; none may look like another one.
	unreadable := func(r rune) bool { return r <= ' ' || r > '~' }
	if agent.agent == "" || len(agent.agent) > maxAgentNameLength || strings.ContainsFunc(agent.agent, unreadable) {
		return identity{}, fmt.Errorf("the common name %q has no name of an agent: 1 to %d printable ASCII characters", name, maxAgentNameLength)
	}
	return agent, nil
}
