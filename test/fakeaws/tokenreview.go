package fakeaws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/yaml"
)

const (
	tokenReviewPath = "/tokenreview/"
	tokenPrefix     = "k8s-aws-v1."
)

// SetAWSAuth sets the function with which the webhook reads mapRoles in the ConfigMap aws-auth of a
// cluster. A cluster that AddCluster did not create is a cluster with aws-iam-authenticator, and has
// no access entries.
func (s *Server) SetAWSAuth(clusterARN string, mapRoles func() (string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awsAuth[clusterARN] = mapRoles
}

// WebhookURL returns the address of the authentication webhook of a cluster's API server. It
// accepts TokenReviews of authentication.k8s.io/v1: a kube-apiserver requires
// --authentication-token-webhook-version=v1.
func (s *Server) WebhookURL(clusterARN string) string { return s.URL() + tokenReviewPath + clusterARN }

// serveTokenReview reviews a token for the cluster with the ARN in the path.
func (s *Server) serveTokenReview(w http.ResponseWriter, hr *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(http.MaxBytesReader(w, hr.Body, maxBody)).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	user, err := s.userOf(review.Spec.Token, hr.PathValue("cluster"))
	if err != nil {
		review.Status = authenticationv1.TokenReviewStatus{Error: err.Error()}
	} else {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: *user}
	}
	review.Spec = authenticationv1.TokenReviewSpec{}
	writeJSON(w, http.StatusOK, review)
}

// userOf returns the user of a token in the cluster.
func (s *Server) userOf(token, clusterARN string) (*authenticationv1.UserInfo, error) {
	parsed, err := parseClusterARN(clusterARN)
	if err != nil {
		return nil, err
	}
	caller, err := s.tokenCaller(token, lastElement(parsed.Resource), time.Now())
	if err != nil {
		return nil, err
	}
	username, groups, err := s.mapping(caller, clusterARN)
	if err != nil {
		return nil, err
	}
	placeholders := strings.NewReplacer(
		"{{AccountID}}", caller.accountID, "{{SessionName}}", strings.ReplaceAll(caller.session, "@", "-"),
		"{{SessionNameRaw}}", caller.session, "{{AccessKeyID}}", caller.keyID)
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i] = placeholders.Replace(groups[i])
	}
	return &authenticationv1.UserInfo{
		Username: placeholders.Replace(username),
		UID:      "aws-iam-authenticator:" + caller.accountID + ":" + caller.sourceID,
		Groups:   groups,
		Extra: map[string]authenticationv1.ExtraValue{
			"accessKeyId": {caller.keyID}, "arn": {caller.ARN}, "canonicalArn": {caller.canonicalARN()},
			"principalId": {caller.sourceID}, "sessionName": {caller.session},
		},
	}, nil
}

// mapping returns the user name and the groups of a caller from an access entry or from aws-auth,
// depending on the mode of the cluster.
func (s *Server) mapping(p *principal, clusterARN string) (username string, groups []string, err error) {
	s.mu.Lock()
	c, mapRoles := s.state.Clusters[clusterARN], s.awsAuth[clusterARN]
	mode := ModeConfigMap
	if c != nil {
		mode = c.Mode
		// An entry applies to the principal that had the ARN when the entry was created.
		if e := c.Entries[p.source]; e != nil && e.PrincipalID == p.sourceID && mode != ModeConfigMap {
			username, groups = e.Username, e.Groups
		}
	}
	s.mu.Unlock()
	if username != "" || mode == ModeAPI || mapRoles == nil {
		if username == "" {
			err = fmt.Errorf("%s has no mapping", p.canonicalARN())
		}
		return username, groups, err
	}
	data, err := mapRoles()
	if err != nil {
		return "", nil, fmt.Errorf("reading aws-auth: %w", err)
	}
	var roles []struct {
		RoleARN, Username string
		Groups            []string
	}
	if err := yaml.Unmarshal([]byte(data), &roles); err != nil {
		return "", nil, fmt.Errorf("aws-auth: %w", err)
	}
	for _, role := range roles {
		if strings.EqualFold(role.RoleARN, p.canonicalARN()) {
			return role.Username, role.Groups, nil
		}
	}
	return "", nil, fmt.Errorf("%s has no mapping", p.canonicalARN())
}

// canonicalARN returns the ARN of the user, or of the role without its path: the ARN of a
// session does not contain the path.
func (p *principal) canonicalARN() string {
	if p.session == "" {
		return p.source
	}
	before, _, _ := strings.Cut(p.source, ":role/")
	return before + ":role/" + lastElement(p.source)
}

// tokenCaller returns the principal that signed the URL in the token, or an error if the token
// is not valid for the cluster.
func (s *Server) tokenCaller(token, clusterName string, now time.Time) (*principal, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return nil, fmt.Errorf("token has no prefix %s", tokenPrefix)
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decoding token: %w", err)
	}
	u, err := url.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("token is not a URL: %w", err)
	}
	if !strings.HasPrefix(string(text), s.URL()+"/?") || u.Query().Get("Action") != "GetCallerIdentity" {
		return nil, fmt.Errorf("token is for %s, which is not GetCallerIdentity of STS", u.Redacted())
	}
	hr := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{clusterIDHeader: {clusterName}}}
	key, _, err := s.verify(hr, nil, serviceSTS, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.principalOf(key, now)
}
