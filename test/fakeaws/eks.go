package fakeaws

import (
	"crypto/md5" //nolint:gosec // See ClusterIssuer.
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
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
)

const (
	standardEntry     = "STANDARD"
	kubernetesVersion = "1.34"
)

var (
	clusterNamePattern = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
	entryTypes         = []string{standardEntry, "EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", "HYPERPOD_LINUX"}
	// reservedPrefixes are the prefixes of names that EKS reserves.
	reservedPrefixes = []string{"system:", "eks:", "aws:", "amazon:", "iam:"}
)

// AddCluster creates an EKS cluster, or changes the mode of an existing one.
func (s *Server) AddCluster(clusterARN string, mode AuthenticationMode) error {
	a, name, ok := parseClusterARN(clusterARN)
	if !ok {
		return fmt.Errorf("%q is not the ARN of an EKS cluster", clusterARN)
	}
	switch mode {
	case ModeAPI, ModeAPIAndConfigMap, ModeConfigMap:
	default:
		return fmt.Errorf("unknown authentication mode %q", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.state.account(a.AccountID, a.Partition); err != nil {
		return err
	}
	c := s.state.Clusters[clusterARN]
	if c == nil {
		c = &clusterRecord{
			ARN: clusterARN, Name: name, AccountID: a.AccountID, Region: a.Region,
			CreatedAt: s.clock.Now().UTC(), Entries: map[string]*entryRecord{},
		}
		s.state.Clusters[clusterARN] = c
	}
	c.Mode = mode
	return s.save()
}

// ClusterIssuer returns the OIDC issuer that DescribeCluster reports for a cluster, without
// https://. AddOIDCProvider registers it as a provider of an account.
func ClusterIssuer(clusterARN string) string {
	arn, _ := parseARN(clusterARN)
	sum := md5.Sum([]byte(clusterARN)) //nolint:gosec // It is a name, not a secret.
	return "oidc.eks." + arn.Region + ".amazonaws.com/id/" + strings.ToUpper(hex.EncodeToString(sum[:]))
}

// SetClusterEndpoint sets the URL of the API server, and its certificate authority in PEM, that
// DescribeCluster returns.
func (s *Server) SetClusterEndpoint(clusterARN, endpoint string, ca []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.Clusters[clusterARN]
	if c == nil {
		return fmt.Errorf("cluster %s does not exist", clusterARN)
	}
	c.Endpoint, c.CA = endpoint, slices.Clone(ca)
	return s.save()
}

// eksInput is the body of a request.
type eksInput map[string]json.RawMessage

// eksRoute is a path of EKS. An element in braces is a parameter.
type eksRoute struct {
	method, path, name string
	op                 *operation
}

var eksRoutes = []eksRoute{
	{"GET", "/clusters/{name}", "DescribeCluster", &operation{resource: clusterResource, run: (*Server).describeCluster}},
	{"POST", "/clusters/{clusterName}/access-entries", "CreateAccessEntry", &operation{required: []string{"principalArn"}, resource: clusterResource, alsoNeeds: eksTagAction, run: (*Server).createAccessEntry, writes: true}},
	{"GET", "/clusters/{clusterName}/access-entries/{principalArn}", "DescribeAccessEntry", &operation{resource: entryResource, run: (*Server).describeAccessEntry}},
	{"POST", "/clusters/{clusterName}/access-entries/{principalArn}", "UpdateAccessEntry", &operation{resource: entryResource, run: (*Server).updateAccessEntry, writes: true}},
	{"DELETE", "/clusters/{clusterName}/access-entries/{principalArn}", "DeleteAccessEntry", &operation{resource: entryResource, run: (*Server).deleteAccessEntry, writes: true}},
	{"POST", "/tags/{resourceArn}", "TagResource", &operation{required: []string{"tags"}, invalid: "BadRequestException", resource: taggedResource, run: (*Server).tagResource, writes: true}},
}

// decodeEKS finds the operation of a request, and its parameters.
func decodeEKS(r *request) *apiError {
	r.service = serviceEKS
	given := strings.Split(strings.TrimPrefix(r.http.URL.EscapedPath(), "/"), "/")
	for _, route := range eksRoutes {
		if route.method != r.http.Method {
			continue
		}
		params, ok := matchPath(strings.Split(strings.TrimPrefix(route.path, "/"), "/"), given)
		if !ok {
			continue
		}
		r.name, r.op, r.params = route.name, route.op, params
		for name, values := range r.http.URL.Query() {
			r.params[name] = strings.Join(values, ",")
		}
		if len(r.body) > 0 {
			if err := json.Unmarshal(r.body, &r.input); err != nil {
				return errorf(http.StatusBadRequest, "SerializationException", "%v", err)
			}
		}
		return nil
	}
	r.params = map[string]string{"path": r.http.Method + " " + r.http.URL.Path}
	return errorf(http.StatusNotFound, "UnknownOperationException", "There is no operation %s %s", r.http.Method, r.http.URL.Path)
}

func matchPath(want, given []string) (map[string]string, bool) {
	if len(want) != len(given) {
		return nil, false
	}
	params := map[string]string{}
	for i, element := range want {
		value, err := url.PathUnescape(given[i])
		if err != nil || value == "" {
			return nil, false
		}
		if name, ok := strings.CutPrefix(element, "{"); ok {
			params[strings.TrimSuffix(name, "}")] = value
		} else if element != value {
			return nil, false
		}
	}
	return params, true
}

func (r *request) clusterARN() string {
	name := r.params["clusterName"]
	if name == "" {
		name = r.params["name"]
	}
	return fmt.Sprintf("arn:%s:eks:%s:%s:cluster/%s", r.caller.Partition, r.region, r.caller.AccountID, name)
}

func clusterResource(_ *Server, r *request) string { return r.clusterARN() }

func taggedResource(_ *Server, r *request) string { return r.params["resourceArn"] }

func entryResource(s *Server, r *request) string {
	principal := r.params["principalArn"]
	if c := s.state.Clusters[r.clusterARN()]; c != nil && c.Entries[principal] != nil {
		return c.Entries[principal].ARN
	}
	return entryARN(r.caller.Partition, r.region, r.caller.AccountID, r.params["clusterName"], principal, "*")
}

func entryARN(partition, region, accountID, cluster, principal, id string) string {
	p, _ := parseARN(principal)
	kind, name, _ := strings.Cut(p.Resource, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	return fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/%s/%s/%s/%s", partition, region, accountID, cluster, kind, p.AccountID, name, id)
}

// eksTagAction returns the additional permission that creating an access entry with tags
// requires.
func eksTagAction(r *request) []permission {
	var tags map[string]string
	var principal string
	if json.Unmarshal(r.input["tags"], &tags) != nil || len(tags) == 0 || json.Unmarshal(r.input["principalArn"], &principal) != nil {
		return nil
	}
	return []permission{{"eks:TagResource", entryARN(r.caller.Partition, r.region, r.caller.AccountID, r.params["clusterName"], principal, "*")}}
}

// cluster returns the cluster that the request names.
func (s *Server) cluster(r *request) (*clusterRecord, *apiError) {
	c := s.state.Clusters[r.clusterARN()]
	if c == nil {
		name := r.clusterARN()[strings.LastIndexByte(r.clusterARN(), '/')+1:]
		return nil, errorf(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", name)
	}
	return c, nil
}

func (c *clusterRecord) fail(status int, code, format string, args ...any) *apiError {
	e := errorf(status, code, format, args...)
	e.Fields = map[string]string{"clusterName": c.Name}
	return e
}

func (c *clusterRecord) invalid(format string, args ...any) *apiError {
	return c.fail(http.StatusBadRequest, "InvalidParameterException", format, args...)
}

func (s *Server) describeCluster(r *request) (any, *apiError) {
	c, e := s.cluster(r)
	if e != nil {
		return nil, e
	}
	return map[string]any{"cluster": map[string]any{
		"name": c.Name, "arn": c.ARN, "createdAt": epoch(c.CreatedAt), "version": kubernetesVersion, "status": "ACTIVE",
		"endpoint": c.Endpoint, "certificateAuthority": map[string]any{"data": c.CA},
		"accessConfig": map[string]any{"authenticationMode": c.Mode},
		"identity":     map[string]any{"oidc": map[string]any{"issuer": "https://" + ClusterIssuer(c.ARN)}}, "tags": orEmpty(c.Tags),
	}}, nil
}

func epoch(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func orEmpty(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
