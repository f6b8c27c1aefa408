package fakeaws

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/google/uuid"
)

// AuthenticationMode is the source of the identities of an EKS cluster.
type AuthenticationMode string

const (
	// ModeAPI uses access entries only.
	ModeAPI AuthenticationMode = "API"
	// ModeAPIAndConfigMap uses access entries first, then the ConfigMap aws-auth.
	ModeAPIAndConfigMap AuthenticationMode = "API_AND_CONFIG_MAP"
	// ModeConfigMap uses the ConfigMap aws-auth only.
	ModeConfigMap AuthenticationMode = "CONFIG_MAP"

	standardEntry = "STANDARD"
)

var (
	clusterPattern = regexp.MustCompile(`^cluster/[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
	// reserved matches the names that EKS reserves, and user names in which a session could have the
	// name of another user.
	reserved = regexp.MustCompile(`^(system|eks|aws|amazon|iam):|^[^:]*{{SessionName`)
)

// eksOperations are the operations of EKS by their patterns of http.ServeMux.
var eksOperations = map[string]struct {
	name string
	run  operation
}{
	"GET /clusters/{name}":                                  {"DescribeCluster", (*Server).describeCluster},
	"POST /clusters/{name}/access-entries":                  {"CreateAccessEntry", (*Server).createAccessEntry},
	"GET /clusters/{name}/access-entries/{principalArn}":    {"DescribeAccessEntry", (*Server).describeAccessEntry},
	"POST /clusters/{name}/access-entries/{principalArn}":   {"UpdateAccessEntry", (*Server).updateAccessEntry},
	"DELETE /clusters/{name}/access-entries/{principalArn}": {"DeleteAccessEntry", (*Server).deleteAccessEntry},
	"POST /tags/{resourceArn}":                              {"TagResource", (*Server).tagResource},
}

func parseClusterARN(name string) (arn.ARN, error) {
	a, err := arn.Parse(name)
	if err != nil || a.Service != serviceEKS || a.Region == "" || !accountIDPattern.MatchString(a.AccountID) || !clusterPattern.MatchString(a.Resource) {
		return arn.ARN{}, fmt.Errorf("%q is not the ARN of an EKS cluster", name)
	}
	return a, nil
}

// AddCluster creates an EKS cluster, or changes the mode of an existing one.
func (s *Server) AddCluster(clusterARN string, mode AuthenticationMode) error {
	a, err := parseClusterARN(clusterARN)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.state.account(a.AccountID, a.Partition); err != nil {
		return err
	}
	if s.state.Clusters[clusterARN] == nil {
		s.state.Clusters[clusterARN] = &cluster{ARN: a, Name: lastElement(a.Resource), Entries: map[string]*AccessEntry{}}
	}
	s.state.Clusters[clusterARN].Mode = mode
	return s.save()
}

// ClusterIssuer returns the OIDC issuer that DescribeCluster reports for a cluster, without
// https://. AddOIDCProvider registers it as a provider of an account.
func ClusterIssuer(clusterARN string) string {
	a, _ := arn.Parse(clusterARN)
	sum := sha256.Sum256([]byte(clusterARN))
	return "oidc.eks." + a.Region + ".amazonaws.com/id/" + strings.ToUpper(hex.EncodeToString(sum[:16]))
}

// cluster returns the cluster that the call names. The caller must have permission for the operation on
// the resource, or on the cluster if the resource is empty.
func (s *Server) cluster(c *call, resource string) (*cluster, error) {
	name := arn.ARN{
		Partition: s.state.Accounts[c.caller.accountID].Partition, Service: serviceEKS, Region: c.region,
		AccountID: c.caller.accountID, Resource: "cluster/" + c.http.PathValue("name"),
	}.String()
	if err := c.requires("eks:"+c.Operation, cmp.Or(resource, name)); err != nil {
		return nil, err
	}
	found := s.state.Clusters[name]
	if found == nil {
		return nil, errorf("ResourceNotFoundException", "No cluster found for name: %s.", c.http.PathValue("name"))
	}
	if c.Operation != "DescribeCluster" && found.Mode == ModeConfigMap {
		return nil, errorf("InvalidRequestException", "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")
	}
	return found, nil
}

func (s *Server) describeCluster(c *call) (any, error) {
	found, err := s.cluster(c, "")
	if err != nil {
		return nil, err
	}
	name := found.ARN.String()
	return map[string]any{"cluster": map[string]any{
		"name": found.Name, "arn": name, "status": "ACTIVE",
		"accessConfig": map[string]any{"authenticationMode": found.Mode},
		"identity":     map[string]any{"oidc": map[string]any{"issuer": "https://" + ClusterIssuer(name)}},
	}}, nil
}

// entryARN returns the ARN of an access entry of the call's cluster.
func (s *Server) entryARN(c *call, principal, id string) string {
	p, _ := arn.Parse(principal)
	kind, _, _ := strings.Cut(p.Resource, "/")
	return fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/%s/%s/%s/%s", s.state.Accounts[c.caller.accountID].Partition, c.region, c.caller.accountID,
		c.http.PathValue("name"), kind, p.AccountID, lastElement(p.Resource), id)
}

// entry returns the access entry that the call names, and its cluster.
func (s *Server) entry(c *call) (*cluster, *AccessEntry, error) {
	principal := c.http.PathValue("principalArn")
	found, err := s.cluster(c, s.entryARN(c, principal, "id"))
	if err != nil {
		return nil, nil, err
	}
	entry := found.Entries[principal]
	if entry == nil {
		return nil, nil, errorf("ResourceNotFoundException", "The specified principalArn could not be found: %s", principal)
	}
	return found, entry, nil
}

// entryInput is the body of CreateAccessEntry and UpdateAccessEntry.
type entryInput struct {
	PrincipalArn, Username, Type, ClientRequestToken string
	KubernetesGroups                                 []string
	Tags                                             map[string]string
}

func (c *call) entryInput() (*entryInput, error) {
	in := &entryInput{}
	if err := decodeStrictly(c.body, in); err != nil {
		return nil, errorf("SerializationException", "%v", err)
	}
	if slices.ContainsFunc(append(in.KubernetesGroups, in.Username), reserved.MatchString) || slices.Contains(in.KubernetesGroups, "") {
		return nil, errorf("InvalidParameterException", "The username %s or a group in %q is invalid, it cannot start with a reserved prefix", in.Username, in.KubernetesGroups)
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, errorf("InvalidParameterException", "%v", err)
	}
	return in, nil
}

func (s *Server) createAccessEntry(c *call) (any, error) {
	found, err := s.cluster(c, "")
	if err != nil {
		return nil, err
	}
	in, err := c.entryInput()
	if err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		if err := c.requires("eks:TagResource", s.entryARN(c, in.PrincipalArn, "id")); err != nil {
			return nil, err
		}
	}
	in.Type = cmp.Or(in.Type, standardEntry)
	if in.Type != standardEntry && (in.Type != "EC2_LINUX" || len(in.KubernetesGroups) > 0 || in.Username != "") {
		return nil, errorf("InvalidParameterException", "The type %s is invalid, or has no groups and no username.", in.Type)
	}
	principal, _ := arn.Parse(in.PrincipalArn)
	id, exists := s.state.principalID(in.PrincipalArn)
	if exists && id != "" {
		if role := s.state.Accounts[principal.AccountID].Roles[lastElement(principal.Resource)]; role != nil && role.UnseenByEKS > 0 {
			role.UnseenByEKS--
			exists = false
		}
	}
	if !exists || id == "" {
		return nil, errorf("InvalidParameterException", "The specified principalArn is invalid: invalid principal.")
	}
	if old := found.Entries[in.PrincipalArn]; old != nil {
		// A request with the same token and body as the creating request is a retry.
		if in.ClientRequestToken != "" && old.Request == string(c.body) {
			return found.show(old), nil
		}
		return nil, errorf("ResourceInUseException", "The specified access entry resource is already in use on this cluster.")
	}
	now := c.now.UTC().Truncate(time.Second)
	entry := &AccessEntry{
		ARN: s.entryARN(c, in.PrincipalArn, uuid.NewString()), PrincipalARN: in.PrincipalArn, PrincipalID: id, Type: in.Type,
		Username: cmp.Or(in.Username, strings.Replace(strings.Replace(in.PrincipalArn, ":iam:", ":sts:", 1), ":role/", ":assumed-role/", 1)+"/{{SessionName}}"),
		Groups:   in.KubernetesGroups, Tags: in.Tags, CreatedAt: now, ModifiedAt: now, Request: string(c.body),
	}
	found.Entries[in.PrincipalArn] = entry
	return found.show(entry), nil
}

// show returns the response with an access entry.
func (c *cluster) show(e *AccessEntry) any {
	return map[string]any{"accessEntry": map[string]any{
		"clusterName": c.Name, "principalArn": e.PrincipalARN, "accessEntryArn": e.ARN, "username": e.Username,
		"kubernetesGroups": append([]string{}, e.Groups...), "type": e.Type, "tags": e.Tags,
		"createdAt": e.CreatedAt.Unix(), "modifiedAt": e.ModifiedAt.Unix(),
	}}
}

func (s *Server) describeAccessEntry(c *call) (any, error) {
	found, entry, err := s.entry(c)
	if err != nil {
		return nil, err
	}
	return found.show(entry), nil
}

func (s *Server) updateAccessEntry(c *call) (any, error) {
	found, entry, err := s.entry(c)
	if err != nil {
		return nil, err
	}
	in, err := c.entryInput()
	if err != nil {
		return nil, err
	}
	if entry.Type != standardEntry {
		return nil, errorf("InvalidRequestException", "Access entries of type %s cannot be updated.", entry.Type)
	}
	if in.KubernetesGroups != nil {
		entry.Groups = in.KubernetesGroups
	}
	entry.Username, entry.ModifiedAt = cmp.Or(in.Username, entry.Username), c.now.UTC().Truncate(time.Second)
	return found.show(entry), nil
}

func (s *Server) deleteAccessEntry(c *call) (any, error) {
	found, entry, err := s.entry(c)
	if err != nil {
		return nil, err
	}
	delete(found.Entries, entry.PrincipalARN)
	return struct{}{}, nil
}

// tagResource adds tags to an access entry.
func (s *Server) tagResource(c *call) (any, error) {
	name := c.http.PathValue("resourceArn")
	if err := c.requires("eks:"+c.Operation, name); err != nil {
		return nil, err
	}
	var in struct{ Tags map[string]string }
	if err := decodeStrictly(c.body, &in); err != nil {
		return nil, errorf("SerializationException", "%v", err)
	}
	for _, found := range s.state.Clusters {
		for _, entry := range found.Entries {
			if entry.ARN != name || found.ARN.AccountID != c.caller.accountID {
				continue
			}
			merged := map[string]string{}
			maps.Copy(merged, entry.Tags)
			maps.Copy(merged, in.Tags)
			if err := checkTags(merged); err != nil {
				return nil, errorf("BadRequestException", "%v", err)
			}
			entry.Tags = merged
			return struct{}{}, nil
		}
	}
	return nil, errorf("NotFoundException", "Resource not found: %s", name)
}
