package fakeaws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

const (
	tokenReviewPath = "/tokenreview/"
	tokenPrefix     = "k8s-aws-v1."
	maxTokenLength  = 4096
	// maxTokenExpires is the maximum X-Amz-Expires of a token, in seconds. A token is valid
	// for 15 minutes regardless of X-Amz-Expires.
	maxTokenExpires = 900
)

// tokenParameters are the query parameters that the URL of a token may have.
var tokenParameters = []string{
	"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
	"x-amz-security-token", "x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent",
}

// ConfigMapData is the data of the ConfigMap kube-system/aws-auth, whose values are YAML.
type ConfigMapData struct {
	MapRoles, MapUsers string
}

// TokenWebhook returns the authentication webhook of a cluster's API server. It accepts
// TokenReviews of authentication.k8s.io/v1. The function awsAuth, which may be nil, reads the
// ConfigMap aws-auth; it returns nil data if the ConfigMap does not exist.
func (s *Server) TokenWebhook(clusterARN string, awsAuth func() (*ConfigMapData, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		s.reviewToken(w, hr, clusterARN, awsAuth)
	})
}

// SetAWSAuth sets the function with which the webhook of WebhookKubeconfig reads the ConfigMap
// aws-auth of a cluster. A cluster that AddCluster did not create is a cluster with
// aws-iam-authenticator, and has no access entries.
func (s *Server) SetAWSAuth(clusterARN string, awsAuth func() (*ConfigMapData, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awsAuth[clusterARN] = awsAuth
}

// WebhookKubeconfig returns the file for --authentication-token-webhook-config-file of
// the cluster's kube-apiserver. The kube-apiserver also requires
// --authentication-token-webhook-version=v1.
func (s *Server) WebhookKubeconfig(clusterARN string) ([]byte, error) {
	return yaml.Marshal(clientcmdapi.Config{
		APIVersion: "v1", Kind: "Config",
		Clusters:       []clientcmdapi.NamedCluster{{Name: "aws", Cluster: clientcmdapi.Cluster{Server: s.URL() + tokenReviewPath + clusterARN}}},
		AuthInfos:      []clientcmdapi.NamedAuthInfo{{Name: "apiserver"}},
		Contexts:       []clientcmdapi.NamedContext{{Name: "webhook", Context: clientcmdapi.Context{Cluster: "aws", AuthInfo: "apiserver"}}},
		CurrentContext: "webhook",
	})
}

// serveTokenReview reviews a token for the cluster with that ARN, or for the only cluster with
// that name. A cluster outside of EKS uses aws-iam-authenticator, which reads aws-auth.
func (s *Server) serveTokenReview(w http.ResponseWriter, hr *http.Request, cluster string) {
	s.mu.Lock()
	var found []string
	for name, c := range s.state.Clusters {
		if name == cluster || c.Name == cluster {
			found = append(found, name)
		}
	}
	if s.state.Clusters[cluster] == nil && s.awsAuth[cluster] != nil {
		found = []string{cluster}
	}
	s.mu.Unlock()
	if len(found) != 1 {
		http.Error(w, fmt.Sprintf("found %d clusters %q, want 1", len(found), cluster), http.StatusNotFound)
		return
	}
	s.mu.Lock()
	awsAuth := s.awsAuth[found[0]]
	s.mu.Unlock()
	s.reviewToken(w, hr, found[0], awsAuth)
}

func (s *Server) reviewToken(w http.ResponseWriter, hr *http.Request, clusterARN string, awsAuth func() (*ConfigMapData, error)) {
	var review authenticationv1.TokenReview
	if hr.Method != http.MethodPost {
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, hr.Body, maxBody)).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if want := authenticationv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "TokenReview" {
		http.Error(w, fmt.Sprintf("want a TokenReview of %s", want), http.StatusBadRequest)
		return
	}
	answer := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: review.APIVersion, Kind: review.Kind}}
	user, err := s.userOf(review.Spec.Token, clusterARN, awsAuth)
	if err != nil {
		answer.Status.Error = err.Error()
	} else {
		answer.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: *user}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may have disconnected.
	_, _ = w.Write(data)
}

// userOf returns the user of a token in the cluster.
func (s *Server) userOf(token, clusterARN string, awsAuth func() (*ConfigMapData, error)) (*authenticationv1.UserInfo, error) {
	_, name, ok := parseClusterARN(clusterARN)
	if !ok {
		return nil, fmt.Errorf("%q is not the ARN of an EKS cluster", clusterARN)
	}
	caller, err := s.tokenCaller(token, name)
	if err != nil {
		return nil, err
	}
	var data *ConfigMapData
	if awsAuth != nil {
		if data, err = awsAuth(); err != nil {
			return nil, fmt.Errorf("reading aws-auth: %w", err)
		}
	}
	mapped, err := s.mapCaller(caller, clusterARN, data)
	if err != nil {
		return nil, err
	}
	return &authenticationv1.UserInfo{
		Username: caller.expand(mapped.username),
		UID:      "aws-iam-authenticator:" + caller.AccountID + ":" + caller.SourceID,
		Groups:   mapped.expandedGroups(caller),
		Extra: map[string]authenticationv1.ExtraValue{
			"accessKeyId":  {caller.KeyID},
			"arn":          {caller.ARN},
			"canonicalArn": {caller.canonicalARN()},
			"principalId":  {caller.SourceID},
			"sessionName":  {caller.Session},
		},
	}, nil
}

// tokenCaller returns the principal that signed the URL in the token, or an error if the token
// is not valid for the cluster.
func (s *Server) tokenCaller(token, clusterName string) (*principal, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) > maxTokenLength {
		return nil, fmt.Errorf("token has no prefix %s, or is longer than %d", tokenPrefix, maxTokenLength)
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decoding token: %w", err)
	}
	u, err := url.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("token is not a URL: %w", err)
	}
	if u.Scheme+"://"+u.Host != s.URL() || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("token is for %s, which is not STS", u.Host)
	}
	if u.Path != "/" {
		return nil, fmt.Errorf("unexpected path %q in token", u.Path)
	}
	query, err := tokenQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	now := s.clock.Now()
	if err := checkTokenQuery(query, now); err != nil {
		return nil, err
	}
	hr := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}
	hr.Header.Set(clusterIDHeader, clusterName)
	g, e := readSignature(hr, nil)
	if e == nil {
		e = s.verify(hr, g, serviceSTS, now)
	}
	if e != nil {
		return nil, e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	caller, e := s.principalOf(s.state.Keys[g.keyID], now)
	if e != nil {
		return nil, e
	}
	return caller, nil
}

// tokenQuery returns the parameters by their names in lower case.
func tokenQuery(raw string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("malformed query in token: %w", err)
	}
	query := map[string]string{}
	for name, all := range values {
		lower := strings.ToLower(name)
		if _, twice := query[lower]; twice || len(all) != 1 {
			return nil, fmt.Errorf("parameter %s is in the token more than once", name)
		}
		if !slices.Contains(tokenParameters, lower) {
			return nil, fmt.Errorf("parameter %s is not allowed in a token", name)
		}
		query[lower] = all[0]
	}
	return query, nil
}

func checkTokenQuery(query map[string]string, now time.Time) error {
	if query["action"] != "GetCallerIdentity" || query["version"] != "2011-06-15" {
		return fmt.Errorf("token is for action %q, version %q", query["action"], query["version"])
	}
	if !slices.Contains(strings.Split(query["x-amz-signedheaders"], ";"), clusterIDHeader) {
		return fmt.Errorf("header %s is not signed", clusterIDHeader)
	}
	if n, err := strconv.Atoi(query["x-amz-expires"]); err != nil || n < 0 || n > maxTokenExpires {
		return fmt.Errorf("invalid X-Amz-Expires %q", query["x-amz-expires"])
	}
	date, err := time.Parse(sigTime, query["x-amz-date"])
	if err != nil {
		return fmt.Errorf("invalid X-Amz-Date: %w", err)
	}
	if now.After(date.Add(presignedSTS)) {
		return fmt.Errorf("token has expired: it was signed at %s", query["x-amz-date"])
	}
	return nil
}
